"""Bundles that the reservoir serves: a deploy installs nothing else, for nodes take their packages from there alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common.errors import ConflictError
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store, age
from reservoir.publication.due import due
from reservoir.publication.publish import record_of


def require(store: Store, identity: str, served: Iterable[str], folder: Path | None) -> None:
    """Raise ConflictError unless a bundle is among those that are served; `folder` is the one that was named for it."""
    names = list(served)
    if identity in names:
        return
    steps = []
    if identity not in store.newest():
        steps.append(f"`penstock reservoir import --allow-rollback {folder or 'BUNDLE'}`")
    if store.rolled_back() or not steps:
        steps.append("`penstock reservoir publish`")
    raise ConflictError(
        f"the site serves {', '.join(names) or 'nothing'}, and not {identity}",
        where=str(folder or store.root),
        hint=f"to install this one run {', then '.join(steps)}, and deploy again; without --bundle a deploy installs "
        "what is served",
    )


def bundles(store: Store) -> dict[str, Bundle]:
    """Return the bundles that the site serves, by identity; where it serves nothing yet, those that it would."""
    if store.serving() is None:
        return store.newest()
    names = record_of(store.current)["bundles"]
    return {identity: bundle for identity, bundle in store.imported().items() if identity in names}


def foreseen(store: Store, identity: str) -> dict[str, Bundle]:
    """Return the bundles that a deploy of one would find served beside it: a new one ends what was gone back to."""
    return due(store) if store.rolled_back() and identity in bundles(store) else store.newest()


def require_foreseen(store: Store, identity: str, folder: Path | None) -> None:
    """Raise the same where a deploy would, before it imports and publishes."""
    held, newest = store.imported(), store.newest()
    if identity not in held:
        return
    mine = held[identity]
    superseded = any(each.name == mine.name and age(each) >= age(mine) for each in newest.values())
    if identity not in newest and not superseded:
        # it was set aside, and counts again once it is imported again
        return
    require(store, identity, due(store), folder)
