"""Published images as docker-registry stores them, for one that reads and never writes: links to the layout's blobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.errors import IntegrityError
from reservoir.artifacts.image import oci
from reservoir.download.cache import link_or_copy

LIST = "index.json"
LAYOUT = "oci"
STORAGE = "registry"
BLOB = "data"


def write(tree: Path) -> bool:
    """Write as much of the storage of the images listed below `tree` as is lacking; say whether anything was.

    What names something comes after it, so that whoever asks meanwhile finds an image whole or not at all. Raises
    IntegrityError where a part of an image is gone.
    """
    changed = False
    for image in json.loads((tree / LIST).read_text())["images"]:
        try:
            changed |= _write(tree / LAYOUT / "blobs/sha256", tree / STORAGE / "docker/registry/v2", image)
        except FileNotFoundError as error:
            raise IntegrityError(
                f"a part of it is gone: {error.filename}",
                where=f"{image['name']}:{image['tag']}",
                hint="import its bundle again, then publish",
            ) from error
    for path in (tree / STORAGE, *(tree / STORAGE).rglob("*")) if changed else ():
        # the registry is another user; blobs are the store's own files, and everybody reads them
        if path.name != BLOB:
            path.chmod(0o755 if path.is_dir() else 0o644)
    return changed


def _write(blobs: Path, top: Path, image: dict[str, Any]) -> bool:
    first = image["digest"].removeprefix("sha256:")
    # each once: an image may have one layer twice, and its architectures may share some
    manifests, parts = [first], dict[str, None]()
    for sha256 in manifests:
        document = oci.read((blobs / sha256).read_bytes(), image["name"])
        children = dict.fromkeys(child.sha256 for child in document.manifests)
        manifests += [child for child in children if child not in manifests]
        parts |= dict.fromkeys(part.sha256 for part in document.parts if part not in document.manifests)
    places = [f"_layers/sha256/{part}" for part in parts]
    # children before the index that names them
    places += [f"_manifests/revisions/sha256/{manifest}" for manifest in reversed(manifests)]
    places += [f"_manifests/tags/{image['tag']}/index/sha256/{first}"]
    links = {top / "repositories" / image["name"] / place / "link": f"sha256:{place[-64:]}" for place in places}
    links[top / "repositories" / image["name"] / f"_manifests/tags/{image['tag']}/current/link"] = image["digest"]
    lacking = [path for sha256 in parts | dict.fromkeys(manifests) if not (path := _data(top, sha256)).exists()]
    for path in lacking:
        path.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(blobs / path.parent.name, path)
    # a power cut may leave one empty
    unsaid = [link for link, digest in links.items() if not (link.is_file() and link.read_text() == digest)]
    for link in unsaid:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.write_text(links[link])
    return bool(lacking or unsaid)


def _data(top: Path, sha256: str) -> Path:
    return top / "blobs/sha256" / sha256[:2] / sha256 / BLOB
