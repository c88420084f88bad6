"""Status: what a site serves and holds, how old it is, how much space it takes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common import files
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError
from common.progress import Progress, silent
from reservoir.bundle import expiry
from reservoir.contents.bundle import Bundle
from reservoir.intake import trust
from reservoir.intake.store import Store
from reservoir.intake.trust import Trust
from reservoir.publication.prune import arrived, unneeded
from reservoir.publication.publish import RECORD, record_of

LOOKS = 5


@dataclass(frozen=True)
class PublicationStatus:
    """One publication; sizes count bytes.

    `own` is what only this publication takes, `shared` what it links to and others have too. `artifacts` counts them by
    kind; those of bundles whose record was pruned are not known.
    """

    number: int
    served: bool
    published: str
    age_seconds: int
    bundles: list[str]
    artifacts: dict[str, int]
    own: int
    shared: int


@dataclass(frozen=True)
class BundleStatus:
    """One bundle that the site holds, or, while it is not `complete`, its arrival; `size` and `arrived` count bytes.

    `arrived` is what an arrival takes so far. `expires` is when its maker no longer answers for it, `warning` what to
    tell people of that.
    """

    identity: str
    name: str
    version: str
    built: str
    age_seconds: int
    artifacts: dict[str, int]
    size: int
    complete: bool
    arrived: int
    expires: str | None
    warning: str


@dataclass(frozen=True)
class Status:
    """The state of a site's reservoir; `used`, `free` and `prunable` count bytes.

    `trust` is whose bundles it takes, where it knows any; `trust_damaged` says why that cannot be told.
    """

    serving: int | None
    trust: Trust | None
    trust_damaged: str
    rolled_back: bool
    publications: list[PublicationStatus]
    bundles: list[BundleStatus]
    used: int
    free: int
    prunable: int


def status(root: Path, now: datetime | None = None, progress: Progress = silent) -> Status:
    """Return the state of the store at `root`; changes nothing, and looks again where others change it meanwhile.

    Raises NotFoundError where there is no store, ConflictError where it changed at every look.
    """
    for _ in range(LOOKS - 1):
        # what was removed meanwhile says nothing any more, as something damaged does
        with suppress(FileNotFoundError, IntegrityError):
            return _look(root, now, progress)
    try:
        return _look(root, now, progress)
    except FileNotFoundError as error:
        raise ConflictError(
            f"{error.filename} went away while the store was read",
            where=str(root),
            hint="wait until the import or publication ends, then run it again",
        ) from error


def _look(root: Path, now: datetime | None, progress: Progress) -> Status:
    store = Store(root)
    if not store.bundles.is_dir():
        raise NotFoundError("nothing was imported yet", where=str(root), hint="run `penstock reservoir import BUNDLE`")
    now = now or datetime.now(UTC)
    progress("read what is held")
    imported = store.imported()
    held = [_bundle(identity, bundle, now) for identity, bundle in imported.items()]
    taken = arrived(store)
    held += [_bundle(identity, bundle, now, taken.get(identity, 0)) for identity, bundle in store.arrivals().items()]
    trusted, damaged = _trust(store)
    progress("measure the store")
    space = files.space([root])
    return Status(
        serving=store.serving(),
        trust=trusted,
        trust_damaged=damaged,
        rolled_back=store.rolled_back(),
        publications=[_publication(store, number, imported, now, progress) for number in store.numbers()],
        bundles=sorted(held, key=lambda one: (one.name, one.built)),
        used=space.own + space.shared,
        free=shutil.disk_usage(root).free,
        prunable=unneeded(store, progress=progress).size,
    )


def _trust(store: Store) -> tuple[Trust | None, str]:
    """Return whose bundles the site takes, or what is damaged of what it keeps about that."""
    try:
        known = trust.known(store)
    except (IntegrityError, InputError) as error:
        return None, str(error)
    return (known.trust if known else None), ""


def _publication(
    store: Store, number: int, imported: Mapping[str, Bundle], now: datetime, progress: Progress
) -> PublicationStatus:
    progress(f"measure publication {number}")
    folder = store.publications / str(number)
    names = record_of(folder)["bundles"]
    published = datetime.fromtimestamp((folder / RECORD).stat().st_mtime, UTC)
    known = {(a.kind, a.filename, a.sha256) for name in names if name in imported for a in imported[name].artifacts}
    space = files.space([folder])
    return PublicationStatus(
        number=number,
        served=number == store.serving(),
        published=f"{published:%FT%TZ}",
        age_seconds=round((now - published).total_seconds()),
        bundles=names,
        artifacts=dict(sorted(Counter(kind for kind, _, _ in known).items())),
        own=space.own,
        shared=space.shared,
    )


def _bundle(identity: str, bundle: Bundle, now: datetime, taken: int | None = None) -> BundleStatus:
    return BundleStatus(
        identity=identity,
        name=bundle.name,
        version=bundle.version,
        built=bundle.created,
        age_seconds=round((now - datetime.fromisoformat(bundle.created)).total_seconds()),
        artifacts=dict(sorted(Counter(artifact.kind for artifact in bundle.artifacts).items())),
        size=sum(bundle.sizes().values()),
        complete=taken is None,
        arrived=taken or 0,
        expires=bundle.expires,
        warning=expiry.warning(bundle, now),
    )
