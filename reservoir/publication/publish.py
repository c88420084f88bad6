"""Publishing: from the site's store to the trees that its nodes read, numbered, switched in one step."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.errors import ConflictError, IntegrityError, NotFoundError
from common.progress import Progress, silent
from reservoir.artifacts.kind import Staging
from reservoir.artifacts.kinds import KINDS
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush, flush_all, space_on
from reservoir.intake.store import Store
from reservoir.publication import gate, past_names

RECORD = "publication.json"
# counts up when the trees of the same bundles look different
LAYOUT = 3


@dataclass(frozen=True)
class Published:
    """The publication that the site serves now; `changed` is false where it served the same before.

    `rolled_back` is true while the site serves what an administrator went back to.
    """

    number: int
    folder: Path
    bundles: list[str]
    changed: bool
    rolled_back: bool = False


def publish(root: Path, progress: Progress = silent, *, unattended: bool = False) -> Published:
    """Publish the newest bundle of each name in the store at `root`.

    A rollback ends with this, unless the call is `unattended`: then what an administrator went back to stays.
    Raises NotFoundError where nothing was imported, ConflictError where bundles contradict each other.
    """
    store = Store(root)
    with store.changing():
        chosen = store.newest()
        if not chosen:
            raise NotFoundError(
                "nothing was imported yet", where=str(root), hint="run `penstock reservoir import BUNDLE`"
            )
        if unattended and store.rolled_back():
            return _served(store, changed=False)
        made_of = {"schema": 1, "layout": LAYOUT, "bundles": sorted(chosen)}
        if _serves(store, made_of):
            store.rollback.unlink(missing_ok=True)
            return _served(store, changed=False)
        gate.require(store, sorted(chosen), datetime.now(UTC))
        number = 1 + max(store.numbers(), default=0)
        staging = store.publications / f".{number}.new"
        shutil.rmtree(staging, ignore_errors=True)
        with space_on(root):
            _write(store, list(chosen.values()), staging, progress)
            (staging / RECORD).write_text(json.dumps(made_of | {"number": number}))
            for path in staging.rglob("*"):
                if path.is_dir():
                    path.chmod(0o755)
            staging.chmod(0o755)
            flush_all(staging)
        staging.rename(store.publications / str(number))
        # before anybody sees it, and with what the site published before it kept such a list
        past_names.remember(root, [store.publications / str(each) for each in store.numbers()])
        _switch(store, number)
        store.rollback.unlink(missing_ok=True)
        return _served(store, changed=True)


def rollback(root: Path, number: int | None = None) -> Published:
    """Serve an earlier publication again: the one with `number`, or the last one before the present one.

    It stays until the next publication that is not unattended. Raises NotFoundError where there is no such publication,
    ConflictError where nodes could not read its trees any more.
    """
    store = Store(root)
    with store.changing():
        serving = store.serving()
        if number is None:
            number = max((earlier for earlier in store.numbers() if serving and earlier < serving), default=0)
        if number not in store.numbers():
            known = ", ".join(map(str, store.numbers())) or "none"
            raise NotFoundError(
                f"there is no publication {number}" if number else "there is no publication before this one",
                where=str(store.publications),
                hint=f"choose one of those that are kept: {known}",
            )
        if record_of(store.publications / str(number))["layout"] != LAYOUT:
            raise ConflictError(
                "nodes of this release cannot read its trees",
                where=str(store.publications / str(number)),
                hint="choose a later publication, or publish anew",
            )
        # before the switch: a rollback counts only while the site serves what it says
        store.mark_rollback(number)
        if number != serving:
            _switch(store, number)
        return _served(store, changed=number != serving)


def record_of(folder: Path) -> dict[str, Any]:
    """Return what a publication says about itself: its number, its layout, the bundles that it was made of."""
    path = folder / RECORD
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        said = None
    if not isinstance(said, dict) or "layout" not in said or not isinstance(said.get("bundles"), list):
        raise IntegrityError(
            "a publication does not say what it was made of",
            where=str(path),
            hint="remove this folder, unless it is the one that is served; then run `penstock reservoir publish`",
        )
    return said


def _served(store: Store, *, changed: bool) -> Published:
    folder = store.current.resolve()
    return Published(int(folder.name), folder, record_of(folder)["bundles"], changed, store.rolled_back())


def _serves(store: Store, wanted: dict[str, object]) -> bool:
    """Say whether the current publication was made of the same bundles."""
    try:
        current = record_of(store.current)
    except IntegrityError:
        return False
    return bool({key: current.get(key) for key in wanted} == wanted)


def _write(store: Store, chosen: list[Bundle], staging: Path, progress: Progress) -> None:
    """Write every tree below `staging`; files are links to the store's blobs."""

    def place(sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(store.blobs / sha256, path)

    keys = staging / "keys"
    keys.mkdir(parents=True)
    created = max(datetime.fromisoformat(bundle.created) for bundle in chosen)
    for kind in KINDS:
        kind.publish(Staging(chosen, staging, keys, place, store.apt_key(), created, progress))


def _switch(store: Store, number: int) -> None:
    """Point `current` to a publication in one step."""
    beside = store.root / ".current.new"
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path("publications") / str(number))
    beside.replace(store.current)
    flush([store.publications, store.root])
