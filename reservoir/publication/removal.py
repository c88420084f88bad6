"""Removal of a bundle from a site by name, with the blobs that nothing else needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common import files
from common.errors import ConflictError, NotFoundError
from common.progress import Progress, silent
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush
from reservoir.intake import newest
from reservoir.intake.store import Store
from reservoir.publication.publish import record_of

ASIDE = ".old"
# what the name of an arrival's folder ends with once it is set aside
ARRIVED = ".arrived"

# what the name of a record's folder ends with, whose list nobody can read
UNREADABLE = ".unreadable"


@dataclass(frozen=True)
class Removed:
    """What a removal takes: identities of bundles, hashes of blobs that nothing else needs.

    `withdrawn` are the bundles that publications still need and the next publication leaves out. `size` counts the
    bytes of files whose last name goes.
    """

    bundles: list[str]
    withdrawn: list[str]
    blobs: list[str]
    size: int


def remove(
    root: Path, name: str, *, withdraw: bool = False, rehearse: bool = False, progress: Progress = silent
) -> Removed:
    """Remove the bundles of that name, or the one of that identity, and arrivals too; with `rehearse` only say what.

    What a publication was made of stays: with `withdraw` the next publication leaves it out, and prune removes it with
    the last publication that needs it. An interruption at any point leaves a whole store, and the next run goes on.
    Raises NotFoundError where the store holds no such bundle, ConflictError where a publication needs it and it is not
    to be withdrawn, or where a site that published would have nothing left to publish, IntegrityError where it cannot
    be known what is in use.
    """
    store = Store(root)
    if not store.bundles.is_dir():
        raise NotFoundError("nothing was imported yet", where=str(root), hint="run `penstock reservoir import BUNDLE`")
    with store.changing():
        progress("look for what only this bundle needs")
        if not store.is_readable(name) or _is_begun(store, name):
            return _remove_unreadable(store, name, withdraw=withdraw, rehearse=rehearse)
        imported, arrivals = store.imported(), store.arrivals()
        chosen, coming = _named(imported, name), _named(arrivals, name)
        begun = sorted(store.bundles.glob(f".*{ASIDE}"))
        if not (chosen or coming or begun):
            known = ", ".join(sorted({bundle.name for bundle in (*imported.values(), *arrivals.values())}))
            raise NotFoundError(
                f"the site holds no bundle {name}",
                where=str(store.bundles),
                hint=f"name one of those: {known or 'none'}",
            )
        needed = _needed(store, chosen)
        if needed and not withdraw:
            raise _in_use(needed, name)
        counting = {identity for held in store.candidates().values() for identity, _ in held}
        # an older bundle of the name takes the place of one that goes; where nothing was published, all may go
        if store.numbers() and counting.intersection(chosen) and not counting.difference(chosen):
            raise ConflictError(
                "nothing would be left to publish", where=name, hint="import what is to take its place first"
            )
        going = [identity for identity in chosen if identity not in needed]
        stays = [bundle for identity, bundle in imported.items() if identity not in going]
        stays += [bundle for identity, bundle in arrivals.items() if identity not in coming]
        blobs = sorted(_blobs(store, [*(imported[identity] for identity in going), *_interrupted(begun)], stays))
        folders = [*(store.bundles / identity for identity in going), *(store.incoming / one for one in coming), *begun]
        removed = Removed(
            bundles=sorted({*going, *coming}),
            withdrawn=sorted(needed),
            blobs=blobs,
            size=files.space([*folders, *(store.blobs / blob for blob in blobs)]).own,
        )
        if not rehearse:
            progress(f"remove {len(blobs)} blobs")
            newest.remember_all(store, (imported[identity] for identity in chosen))
            store.withdraw(needed)
            _remove(store, going, coming, blobs)
        return removed


def _remove_unreadable(store: Store, identity: str, *, withdraw: bool, rehearse: bool) -> Removed:
    """Remove a record whose list cannot be read; which blobs were its own is not known, so that prune removes them."""
    folder, aside, begun = store.bundles / identity, _unreadable(store, identity), _is_begun(store, identity)
    if not (begun or withdraw) and (needed := _needed(store, [identity])):
        raise _in_use(needed, identity)
    removed = Removed(bundles=[identity], withdrawn=[], blobs=[], size=files.space([aside if begun else folder]).own)
    if not rehearse:
        if not begun:
            if aside.exists():
                shutil.rmtree(aside)
            folder.rename(aside)
            flush([store.bundles])
        shutil.rmtree(aside)
    return removed


def _unreadable(store: Store, identity: str) -> Path:
    return store.bundles / f".{identity}{UNREADABLE}"


def _is_begun(store: Store, name: str) -> bool:
    """Say whether a removal of an unreadable record was interrupted once that was out of the store."""
    return bundles.is_identity(name) and _unreadable(store, name).is_dir() and not (store.bundles / name).exists()


def _named(held: Mapping[str, Bundle], name: str) -> list[str]:
    return [identity for identity, bundle in held.items() if name in (identity, bundle.name)]


def _needed(store: Store, chosen: Iterable[str]) -> dict[str, list[int]]:
    """Return the chosen bundles that publications were made of, with the numbers of these."""
    made_of = {number: record_of(store.publications / str(number))["bundles"] for number in store.numbers()}
    found = {one: [number for number, names in made_of.items() if one in names] for one in chosen}
    return {identity: numbers for identity, numbers in found.items() if numbers}


def _in_use(needed: Mapping[str, list[int]], name: str) -> ConflictError:
    identity, numbers = next(iter(needed.items()))
    return ConflictError(
        f"{identity} is needed by publication {', '.join(map(str, numbers))}",
        where=name,
        hint="say --withdraw and publish: it is left out then, and prune removes it with the last that needs it",
    )


def _interrupted(begun: Iterable[Path]) -> list[Bundle]:
    """Return what interrupted removals had taken out of the store, and whose blobs may still be there."""
    lists = [folder / bundles.LIST for folder in begun]
    return [bundles.decode(path.read_bytes(), str(path)) for path in lists if path.is_file()]


def _blobs(store: Store, going: Iterable[Bundle], staying: Iterable[Bundle]) -> set[str]:
    """Return the blobs that are there and that none of those that stay needs."""
    wanted = {blob for bundle in going for blob in bundle.sizes()}
    used = {blob for bundle in staying for blob in bundle.sizes()}
    return {blob for blob in wanted - used if (store.blobs / blob).exists()}


def _remove(store: Store, going: Iterable[str], coming: Iterable[str], blobs: Iterable[str]) -> None:
    """Take the records out of the store first, and forget them last: until then it is known what was to go."""
    for identity in going:
        _set_aside(store.bundles / identity, store.bundles / f".{identity}{ASIDE}")
    for identity in coming:
        _set_aside(store.incoming / identity, store.bundles / f".{identity}{ARRIVED}{ASIDE}")
    flush([store.bundles])
    for blob in blobs:
        (store.blobs / blob).unlink(missing_ok=True)
    for aside in sorted(store.bundles.glob(f".*{ASIDE}")):
        _forget(aside)
    if store.incoming.is_dir() and not any(store.incoming.iterdir()):
        store.incoming.rmdir()


def _set_aside(folder: Path, aside: Path) -> None:
    if aside.exists():
        _forget(aside)
    folder.rename(aside)


def _forget(aside: Path) -> None:
    """Delete a folder that was set aside; what says which blobs were its own goes last."""
    for path in aside.iterdir():
        if path.name == bundles.LIST:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (aside / bundles.LIST).unlink(missing_ok=True)
    aside.rmdir()
