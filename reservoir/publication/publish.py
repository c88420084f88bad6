"""Publishing: from the site's store to the trees that its nodes read, numbered, switched in one step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.errors import ConflictError, ForbiddenError, IntegrityError, NotFoundError, PenstockError, Problem
from common.progress import Progress, silent
from reservoir.artifacts import kinds
from reservoir.artifacts.image import storage
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush, flush_all, space_on
from reservoir.intake.store import Store
from reservoir.publication import gate, past_names, sound

RECORD = "publication.json"
# counts up when the trees of the same bundles look different
LAYOUT = 4
READABLE = (3, 4)
"""Layouts that the nodes of this release can read."""


@dataclass(frozen=True)
class Published:
    """The publication that the site serves now; `changed` is false where it served the same before.

    `rolled_back` is true while the site serves what an administrator went back to, `left_out` says which bundles could
    not be published with the others, and why, `opens` what a rollback brought back.
    """

    number: int
    folder: Path
    bundles: list[str]
    changed: bool
    rolled_back: bool = False
    left_out: list[Problem] = field(default_factory=list)
    opens: list[str] = field(default_factory=list)


def publish(root: Path, progress: Progress = silent, *, unattended: bool = False) -> Published:
    """Publish the newest bundle of each name in the store at `root`.

    A rollback ends with this, unless the call is `unattended`: then what an administrator went back to stays, and where
    the site serves these bundles already its policy is not asked.
    A bundle that cannot be published, alone or with the others, is left out, and an older one of its name takes its
    place where there is one that the policy lets through. Raises NotFoundError where nothing was imported,
    ForbiddenError where the site's policy as it is now does not let them through, or one that is served and would take
    a place, IntegrityError where nothing can be published, or what is served fails in a way that no check knows.
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
        try:
            return _publish(store, chosen, progress, unattended=unattended)
        except Exception as error:
            if not sound.of_a_bundle(error, root):
                raise
            return _publish_rest(store, error, progress, unattended=unattended)


def _publish_rest(store: Store, error: Exception, progress: Progress, *, unattended: bool) -> Published:
    """Publish what remains without the bundles at fault, which are named; raises the error again where that is none."""
    progress("look for the bundle at fault")
    served, now = _now_served(store), datetime.now(UTC)

    def refused(identity: str) -> list[Problem]:
        # the policy takes nothing away that is served: its gate refuses the whole publication then
        return [] if identity in served else gate.refused(store, [identity], now)

    # what was served once can be again, unless this release fails by it as nobody thought of
    tried = served if isinstance(error, PenstockError) else []
    rest, faults = sound.choose(store, served, refused, tried)
    if tried and not faults:
        rest, faults = sound.choose(store, served, refused, tried=[])
    if not faults:
        raise error
    if not rest:
        raise IntegrityError.of(faults) from error
    try:
        return replace(_publish(store, rest, progress, unattended=unattended), left_out=faults)
    except ForbiddenError as refusal:
        raise ForbiddenError.of([*faults, *refusal.problems]) from error


def _publish(store: Store, chosen: dict[str, Bundle], progress: Progress, *, unattended: bool) -> Published:
    """Publish these bundles, unless the site serves them already."""
    made_of = {"schema": 1, "layout": LAYOUT, "bundles": sorted(chosen)}
    served = _serves(store, made_of)
    # a deploy that brings nothing new decides nothing, and must not fail as time goes by
    if not (served and unattended):
        gate.require(store, sorted(chosen), datetime.now(UTC))
    if served:
        store.rollback.unlink(missing_ok=True)
        return _served(store, changed=False)
    number = 1 + max(store.numbers(), default=0)
    staging = store.publications / f".{number}.new"
    shutil.rmtree(staging, ignore_errors=True)
    with space_on(store.root, staging):
        kinds.publish(list(chosen.values()), staging, store.blobs, store.apt_key(), progress)
        (staging / RECORD).write_text(json.dumps(made_of | {"number": number}))
        for path in staging.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        staging.chmod(0o755)
        progress("wait for the disk")
        flush_all(staging)
    # what is interrupted from here on counts once it is served
    store.begin(number)
    folder = staging.rename(store.publications / str(number))
    # before anybody sees it, and with what the site published before it kept such a list
    past_names.remember(store.root, [folder, *(store.publications / str(each) for each in store.numbers())])
    _switch(store, number)
    store.begun.unlink()
    store.rollback.unlink(missing_ok=True)
    return _served(store, changed=True)


def rollback(
    root: Path,
    number: int | None = None,
    *,
    despite_policy: bool = False,
    tell: Callable[[Published], None] = lambda _: None,
) -> Published:
    """Serve an earlier publication again: the one with `number`, or the last one before the present one.

    It stays until the next publication that is not unattended. It ends once `tell` has said where it went: what was
    interrupted before that goes to the same publication when it is run again. Raises NotFoundError where there is no
    such publication, ConflictError where nodes could not read its trees any more, ForbiddenError where the site's
    policy as it is now does not let its bundles through, unless it is to be served `despite_policy`.
    """
    store = Store(root)
    with store.changing():
        serving = store.serving()
        if number is None and store.rollback_begun():
            # nobody was told that it went there: once more would be one too far
            number = serving
        if number is None:
            number = max((earlier for earlier in store.numbers() if serving and earlier < serving), default=0)
        if number not in store.numbers():
            known = ", ".join(map(str, store.numbers()))
            raise NotFoundError(
                f"there is no publication {number}" if number else "there is no publication before this one",
                where=str(store.publications),
                hint=f"choose one of those that are kept: {known}"
                if known
                else "run `penstock reservoir import BUNDLE`",
            )
        if record_of(store.publications / str(number))["layout"] not in READABLE:
            raise ConflictError(
                "nodes of this release cannot read its trees",
                where=str(store.publications / str(number)),
                hint="choose a later publication, or publish anew",
            )
        opens = [] if number == serving else _opens(store, number, despite_policy=despite_policy)
        # before the switch: a rollback counts only while the site serves what it says
        store.mark_rollback(number, begun=True)
        if number != serving:
            _switch(store, number)
        done = replace(_served(store, changed=number != serving), opens=opens)
        tell(done)
        store.mark_rollback(number)
        return done


def _opens(store: Store, number: int, *, despite_policy: bool) -> list[str]:
    """Return what comes back with a publication; raises ForbiddenError where the policy refuses that."""
    wanted = record_of(store.publications / str(number))["bundles"]
    if not despite_policy and (problems := gate.refused(store, wanted, datetime.now(UTC))):
        hint = "; or say --despite-policy"
        raise ForbiddenError.of([replace(problem, hint=problem.hint + hint) for problem in problems])
    served = _now_served(store)
    back, gone = [name for name in wanted if name not in served], [name for name in served if name not in wanted]
    lines = [f"{', '.join(back) or 'nothing'} is served again, {', '.join(gone) or 'nothing'} no longer"]
    return lines + gate.opened(store, back, gone)


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
    # one of an earlier release has none yet
    mended = storage.write(folder / "images")
    return Published(int(folder.name), folder, record_of(folder)["bundles"], changed or mended, store.rolled_back())


def _serves(store: Store, wanted: dict[str, object]) -> bool:
    """Say whether the current publication was made of the same bundles."""
    try:
        current = record_of(store.current)
    except IntegrityError:
        return False
    return bool({key: current.get(key) for key in wanted} == wanted)


def _now_served(store: Store) -> list[str]:
    """Return the bundles of the current publication, where there is one that says so."""
    try:
        return list(record_of(store.current)["bundles"])
    except IntegrityError:
        return []


def _switch(store: Store, number: int) -> None:
    """Point `current` to a publication in one step.

    Who read the lists of the one before gets what they told of at every moment: by `before`, and by `after` while that
    changes.
    """
    serving = store.serving()
    _point(store.after, number)
    _point(store.before, number if serving is None else serving)
    _point(store.current, number)
    flush([store.publications, store.root])


def _point(link: Path, number: int) -> None:
    beside = link.with_name(f".{link.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path("publications") / str(number))
    beside.replace(link)
