"""Publish: from the site's store to the trees that its nodes read, numbered, switched in one step."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from reservoir import apt_tree, pypi_tree
from reservoir.cache import flush, room_on
from reservoir.errors import ConflictError, NotFoundError
from reservoir.model import Artifact, Bundle
from reservoir.progress import Progress, silent
from reservoir.store import Store

RECORD = "publication.json"
# counts up when the trees of the same bundles look different
LAYOUT = 1


@dataclass(frozen=True)
class Published:
    """The publication that the site serves now; `changed` is false where it served the same before."""

    number: int
    folder: Path
    bundles: list[str]
    changed: bool


def publish(root: Path, progress: Progress = silent) -> Published:
    """Publish the newest bundle of each name in the store at `root`.

    Raises NotFoundError where nothing was imported, ConflictError where bundles contradict each other.
    """
    store = Store(root)
    with store.changing():
        chosen = store.newest()
        if not chosen:
            raise NotFoundError(
                "nothing was imported yet", where=str(root), cure="run `penstock reservoir import BUNDLE`"
            )
        record = {"schema": 1, "layout": LAYOUT, "bundles": sorted(chosen)}
        if _serves(store, record):
            folder = store.current.resolve()
            return Published(int(folder.name), folder, sorted(chosen), changed=False)
        number = 1 + max((int(path.name) for path in store.publications.glob("[0-9]*")), default=0)
        staging = store.publications / f".{number}.new"
        shutil.rmtree(staging, ignore_errors=True)
        with room_on(root):
            _write(store, list(chosen.values()), staging, progress)
            (staging / RECORD).write_text(json.dumps(record | {"number": number}))
            for path in staging.rglob("*"):
                if path.is_dir():
                    path.chmod(0o755)
            staging.chmod(0o755)
            flush([staging])
        staging.rename(store.publications / str(number))
        _switch(store, number)
        return Published(number, store.publications / str(number), sorted(chosen), changed=True)


def _serves(store: Store, record: dict[str, object]) -> bool:
    """Say whether the current publication was made of the same bundles."""
    try:
        current = json.loads((store.current / RECORD).read_text())
    except (FileNotFoundError, ValueError):
        return False
    return bool({key: current.get(key) for key in record} == record)


def _write(store: Store, chosen: list[Bundle], staging: Path, progress: Progress) -> None:
    """Write every tree below `staging`; files are links to the store's blobs."""

    def place(sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(store.blobs / sha256, path)

    for name in ("apt", "pypi", "files", "images", "keys"):
        (staging / name).mkdir(parents=True)
    progress("publish Debian packages")
    secret = store.apt_key()
    (staging / "keys" / apt_tree.KEYRING).write_bytes(apt_tree.public_key(secret))
    created = max(datetime.fromisoformat(bundle.created) for bundle in chosen)
    for release, arch in sorted({(t.release, t.arch) for bundle in chosen for t in bundle.targets}):
        debs = [
            deb
            for bundle in chosen
            for deb in bundle.of_kind("debian")
            if any((t.release, t.arch) == (release, arch) for t in bundle.targets if t.name in deb.targets)
        ]
        apt_tree.write(staging / "apt", debs, release=release, arch=arch, created=created, secret=secret, place=place)
    progress("publish Python packages")
    pypi_tree.write(staging / "pypi", [a for bundle in chosen for a in bundle.of_kind("python")], place)
    progress("publish images and files")
    images = _named([a for bundle in chosen for a in bundle.of_kind("image")])
    for image in images:
        place(image.sha256, staging / "images" / image.filename)
    index = {"images": [_entry(image) for image in images]}
    (staging / "images" / "index.json").write_text(json.dumps(index, indent=1))
    for file in _named([a for bundle in chosen for a in bundle.of_kind("file")]):
        place(file.sha256, staging / "files" / file.filename)


def _named(artifacts: list[Artifact]) -> list[Artifact]:
    """Return each file once; raises ConflictError where two different ones have one name."""
    found: dict[str, Artifact] = {}
    for artifact in artifacts:
        if found.setdefault(artifact.filename, artifact).sha256 != artifact.sha256:
            raise ConflictError(
                "two different files have one name", where=artifact.filename, cure="rename one in its bundle"
            )
    return [found[name] for name in sorted(found)]


def _entry(image: Artifact) -> dict[str, object]:
    """Return what the index of images says about one."""
    return {
        "name": image.name,
        "tag": image.metadata["tag"],
        "archive": image.filename,
        "digest": image.metadata["digest"],
        "session": image.metadata["session"],
    }


def _switch(store: Store, number: int) -> None:
    """Point `current` to a publication in one step."""
    beside = store.root / ".current.new"
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path("publications") / str(number))
    beside.replace(store.current)
    flush([store.publications, store.root])
