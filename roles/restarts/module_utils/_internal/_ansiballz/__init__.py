"""A loader for what Ansible sends to a node, which keeps what it has compiled.

Each task brings its module and 50 files of Ansible's as an archive, and Python would compile all of them anew, and
twice: that is most of the work of a deploy that changes little. Ansible takes this file in place of its own, which is
empty, as `module_utils` of `ansible.cfg` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
import zipimport
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

FOLDER = Path("/run/penstock-modules")
"""Kept until the node boots, under the digest of what was compiled: no file is ever out of date."""


class KeepingImporter(zipimport.zipimporter):
    """Takes byte code from a folder that nobody but this user can write to."""

    def get_filename(self, fullname: str) -> str:
        """Return where the source of a module is; Python's own compiles it to find that out."""
        name = self.prefix + fullname.rpartition(".")[2]
        return f"{self.archive}/{name}{'/__init__' if self.is_package(fullname) else ''}.py"

    def get_code(self, fullname: str) -> CodeType:
        """Return the byte code of a module."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        name = path.removeprefix(f"{self.archive}/")  # the archive has another name each time
        kept = FOLDER / hashlib.sha256(b"%s%s\0%s" % (MAGIC_NUMBER, name.encode(), source)).hexdigest()
        with contextlib.suppress(OSError, EOFError, TypeError, ValueError):
            return marshal.loads(kept.read_bytes())  # noqa: S302 - this user wrote it
        code = compile(source, name, "exec", dont_inherit=True)
        with contextlib.suppress(OSError):  # nobody misses it where there is no room
            beside = kept.with_suffix(f".{os.getpid()}")
            beside.write_bytes(marshal.dumps(code))
            beside.rename(kept)
        return code


def trusted(folder: Path) -> bool:
    """Return whether a folder is there, made if need be, and what is in it can be of nobody but this user."""
    try:
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return (found.st_mode, found.st_uid) == (0o40700, os.geteuid())


def install(archive: str) -> None:
    """Let what is left of an archive come by this loader."""
    sys.path_hooks.insert(0, KeepingImporter)
    for path in [path for path in sys.path_importer_cache if path.startswith(archive)]:
        del sys.path_importer_cache[path]


if isinstance(__loader__, zipimport.zipimporter) and trusted(FOLDER):
    install(__loader__.archive)
