"""Image archives: one tar that is an OCI layout and that `docker load` reads as well; the same root, the same bits."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reservoir import process

LEVEL = 1
GZIP = 16 + zlib.MAX_WBITS
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Layer:
    """A packed root file system: its file, the hash of the file and the hash of the tar inside."""

    path: Path
    digest: str
    diff_id: str


def pack(root: Path, path: Path, timestamp: int) -> Layer:
    """Pack a root file system into a gzip file; nothing in it is newer than `timestamp`."""
    packed, plain = hashlib.sha256(), hashlib.sha256()
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    with path.open("wb") as file:
        for piece in tar_stream(root, timestamp):
            plain.update(piece)
            data = compressor.compress(piece)
            packed.update(data)
            file.write(data)
        data = compressor.flush()
        packed.update(data)
        file.write(data)
    return Layer(path, packed.hexdigest(), plain.hexdigest())


def tar_stream(root: Path, timestamp: int) -> Iterator[bytes]:
    """Yield a tar of a root file system in an order and with times that do not depend on when it was made."""
    options = ["--sort=name", f"--mtime=@{timestamp}", "--clamp-mtime", "--numeric-owner", "--format=posix"]
    # without these GNU tar writes its process number and the times of access into the archive
    options += ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
    options += ["--xattrs", "--xattrs-include=*"]
    return process.stream(["tar", *options, "--directory", str(root), "--create", "--file=-", "."])


def write(path: Path, layer: Layer, *, reference: str, arch: str, config: dict[str, Any], created: str) -> str:
    """Write the archive of a one-layer image; return the digest of its manifest."""
    described = {
        "architecture": arch,
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff_id}"]},
        "history": [{"created": created, "created_by": "penstock reservoir build"}],
    }
    config_blob = _json(described)
    config_digest = hashlib.sha256(config_blob).hexdigest()
    size = layer.path.stat().st_size
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": f"sha256:{config_digest}", "size": len(config_blob)},
        "layers": [{"mediaType": LAYER_TYPE, "digest": f"sha256:{layer.digest}", "size": size}],
    }
    manifest_blob = _json(manifest)
    digest = hashlib.sha256(manifest_blob).hexdigest()
    entry = {
        "mediaType": MANIFEST_TYPE,
        "digest": f"sha256:{digest}",
        "size": len(manifest_blob),
        "annotations": {"org.opencontainers.image.ref.name": reference.rpartition(":")[2]},
    }
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]}
    loadable = [
        {
            "Config": f"blobs/sha256/{config_digest}",
            "RepoTags": [reference],
            "Layers": [f"blobs/sha256/{layer.digest}"],
        }
    ]
    small = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json(loadable),
        f"blobs/sha256/{config_digest}": config_blob,
        f"blobs/sha256/{digest}": manifest_blob,
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        _add_folders(archive, ("blobs", "blobs/sha256"))
        for name, content in small.items():
            archive.addfile(_member(name, len(content)), io.BytesIO(content))
        with layer.path.open("rb") as file:
            archive.addfile(_member(f"blobs/sha256/{layer.digest}", size), file)
    return f"sha256:{digest}"


def _add_folders(archive: tarfile.TarFile, names: Iterable[str]) -> None:
    for name in names:
        folder = tarfile.TarInfo(name)
        folder.type = tarfile.DIRTYPE
        folder.mode = 0o755
        archive.addfile(folder)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
