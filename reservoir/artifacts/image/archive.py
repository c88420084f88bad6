"""Archives that `docker load` of every version reads, made of an image's blobs where a Docker Engine needs one."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from common.errors import IntegrityError
from reservoir.artifacts.image import oci
from reservoir.download.cache import digest

HINT = "do not use this image; get its bundle again from its maker"


def write(path: Path, blobs: Path, sha256: str, reference: str) -> None:
    """Write the archive of the image whose manifest is `sha256`; `blobs` is the folder of files by hash.

    Raises IntegrityError where a blob is missing or its hash does not hold.
    """
    manifest = oci.read(_checked(blobs, sha256).read_bytes(), reference)
    if manifest.config is None:
        raise IntegrityError("an image of several architectures has no archive", where=reference, hint="choose one")
    config, layers = manifest.config.sha256, [layer.sha256 for layer in manifest.layers]
    loadable = json.dumps(
        [{"Config": f"{config}.json", "RepoTags": [reference], "Layers": [f"{x}.tar" for x in layers]}]
    )
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(_member("manifest.json", len(loadable)), io.BytesIO(loadable.encode()))
        for name, blob in [(f"{config}.json", config), *((f"{layer}.tar", layer) for layer in layers)]:
            source = _checked(blobs, blob)
            with source.open("rb") as file:
                archive.addfile(_member(name, source.stat().st_size), file)


def _checked(blobs: Path, sha256: str) -> Path:
    path = blobs / sha256
    if not path.is_file():
        raise IntegrityError("a blob is missing", where=str(path), hint=HINT)
    if digest(path) != sha256:
        raise IntegrityError("the hash of the blob does not hold", where=str(path), hint=HINT)
    return path


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member
