"""Pruning, which gives back the space of publications, bundles and blobs that nothing needs any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common import files
from common.errors import InputError, NotFoundError
from common.progress import Progress, silent
from reservoir.bundle import bundles
from reservoir.intake import newest
from reservoir.intake.store import Store
from reservoir.publication.publish import record_of

KEEP = 3
"""So many of the newest publications stay."""
VERSIONS = 1
"""So many of the newest bundles of each name stay."""


@dataclass(frozen=True)
class Unneeded:
    """What nothing needs: numbers of publications, identities of bundles, hashes of blobs, leftovers of interruptions.

    `arrivals` stay: they are bundles of which media are missing, by identity, with the bytes that they take so far.
    `size` counts the bytes of files whose last name goes; what something else still links to takes its space anyway.
    """

    publications: list[int]
    bundles: list[str]
    blobs: list[str]
    leftovers: list[Path]
    size: int
    arrivals: dict[str, int]

    @property
    def nothing(self) -> bool:
        """Say whether there is nothing to remove."""
        return not (self.publications or self.bundles or self.blobs or self.leftovers)


def prune(
    root: Path, *, keep: int = KEEP, versions: int = VERSIONS, rehearse: bool = False, progress: Progress = silent
) -> Unneeded:
    """Remove what neither the `keep` newest publications nor the served one need; with `rehearse` only say what it is.

    The newest `versions` of each name of bundles stay, too, and every blob of a bundle that stays or is being imported.
    An interruption at any point leaves a whole store, and the next run goes on. Raises InputError where one of these is
    less than 1, NotFoundError where there is no store, IntegrityError where it cannot be known what is in use: then
    nothing goes.
    """
    if keep < 1:
        raise InputError("at least one publication stays", where="--keep", hint="give a number of 1 or more")
    if versions < 1:
        raise InputError("the newest bundle stays", where="--versions", hint="give a number of 1 or more")
    store = Store(root)
    if not store.bundles.is_dir():
        raise NotFoundError("nothing was imported yet", where=str(root), hint="run `penstock reservoir import BUNDLE`")
    if rehearse:
        return _unneeded(store, keep, versions, progress)
    with store.changing():
        unneeded = _unneeded(store, keep, versions, progress)
        _remove(store, unneeded, progress)
        return unneeded


def unneeded(store: Store, keep: int = KEEP, progress: Progress = silent) -> Unneeded:
    """Return what `prune` would remove."""
    return _unneeded(store, keep, VERSIONS, progress)


def _unneeded(store: Store, keep: int, versions: int, progress: Progress) -> Unneeded:
    progress("look for what nothing needs")
    kept = {*store.numbers()[-keep:], *([serving] if (serving := store.serving()) else [])}
    publications = [number for number in store.numbers() if number not in kept]
    needed = {name for number in kept for name in record_of(store.publications / str(number))["bundles"]}
    needed |= {identity for held in store.candidates().values() for identity, _ in held[:versions]}
    imported = store.imported()
    old = [identity for identity in imported if identity not in needed]
    used = {blob for identity in needed & imported.keys() for blob in imported[identity].sizes()}
    used |= {blob for bundle in store.arrivals().values() for blob in bundle.sizes()}
    present = {path.name for path in store.blobs.glob("[0-9a-f]*") if not path.suffix}
    blobs = sorted(present - used)
    leftovers = sorted(_leftovers(store))
    progress("measure what nothing needs")
    folders = [*(store.publications / str(number) for number in publications), *(store.bundles / name for name in old)]
    size = files.space([*folders, *(store.blobs / blob for blob in blobs), *leftovers]).own
    return Unneeded(publications, old, blobs, leftovers, size, arrived(store))


def arrived(store: Store) -> dict[str, int]:
    """Return how many bytes each arrival takes, by the identity of its bundle."""
    return {identity: files.space([store.incoming / identity]).own for identity in store.arrivals()}


def _leftovers(store: Store) -> Iterator[Path]:
    """Yield what interrupted runs left behind."""
    # the root may lie on a disk of its own, with what its file system or its keeper put there
    for link in (store.current, store.before, store.after):
        if (switch := link.with_name(f".{link.name}.new")).is_symlink():
            yield switch
    for folder in (store.publications, store.bundles, store.blobs):
        yield from folder.glob(".*")
    yield from store.blobs.glob("*.partial")
    # of a bundle whose list never came nobody knows what it is
    yield from (folder for folder in store.incoming.glob("*") if not (folder / "record" / bundles.LIST).is_file())


def _remove(store: Store, unneeded: Unneeded, progress: Progress) -> None:
    """Remove what is not needed, in an order that never leaves a record of something that is not there."""
    imported = store.imported()
    newest.remember_all(store, (imported[identity] for identity in unneeded.bundles))
    for number in unneeded.publications:
        progress(f"remove publication {number}")
        _discard(store.publications / str(number))
    for identity in unneeded.bundles:
        progress(f"remove {identity}")
        _discard(store.bundles / identity)
    progress(f"remove {len(unneeded.blobs)} blobs")
    for path in (*(store.blobs / blob for blob in unneeded.blobs), *unneeded.leftovers):
        _delete(path)


def _discard(folder: Path) -> None:
    """Take a folder out of the store in one step, then delete it: what is there counts as whole."""
    aside = folder.with_name(f".{folder.name}.old")
    _delete(aside)
    folder.rename(aside)
    _delete(aside)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
