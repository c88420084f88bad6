"""The core metadata in a wheel, whatever was made of the wheel: sizes are looked at before anything is unpacked."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from pathlib import Path

# far more than any real wheel says of itself
LARGEST = 16 << 20


def read(path: Path) -> bytes:
    """Return the metadata of a wheel; raises ValueError that says why it has none that can be read."""
    try:
        with zipfile.ZipFile(path) as wheel:
            # a wheel may carry other packages' metadata deeper inside
            found = [
                entry
                for entry in wheel.infolist()
                if entry.filename.count("/") == 1 and entry.filename.endswith(".dist-info/METADATA")
            ]
            if not found:
                raise ValueError("the wheel has no metadata")
            if found[0].file_size > LARGEST:
                raise ValueError(f"its metadata has {found[0].file_size} bytes, {LARGEST} are allowed")
            return wheel.read(found[0])
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, OverflowError) as error:
        # forged places in a file are the system's errors, too
        raise ValueError(f"the wheel is damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:
        # a way of packing that nobody installs from, or a password
        raise ValueError(f"the wheel cannot be unpacked: {error}") from error
