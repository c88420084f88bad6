"""Import: from carried disks into the site's store, all of a bundle or nothing of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common import files
from common.disk_limit import DiskLimit
from common.errors import ConflictError, IntegrityError, PenstockError, UnavailableError
from common.progress import Progress, silent
from reservoir import settings
from reservoir.artifacts import kinds
from reservoir.bundle import bundles, verification
from reservoir.bundle.verification import Verified
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush, reads_as, space_on
from reservoir.intake.arrival import Arrival
from reservoir.intake.store import Store, age
from reservoir.signing import ed25519, keychain

SHOWN = 16


@dataclass(frozen=True)
class Imported:
    """A bundle that the site holds now, whole or as an arrival; `changed` is false where it held it before.

    `media` counts those of the set. While `complete` is false the bundle does not count yet: the media `missing`
    never came, something of those `damaged` is still lacking.
    """

    identity: str
    changed: bool
    complete: bool = True
    media: int = 1
    missing: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def take(
    folder: Path,
    root: Path,
    *,
    key: Ed25519PublicKey | None = None,
    allow_rollback: bool = False,
    pin: bool = True,
    progress: Progress = silent,
) -> Imported:
    """Import the bundle in `folder`, or on the medium, into the store at `root`.

    `allow_rollback` takes an older bundle than the site holds; it is published then, until a newer one is imported.
    What fails leaves the store as it was; of a set of media what is good is kept until the others come.
    The first import pins the bundle's key, or the one that the installer was given, or `key` where it is given; later
    bundles must be signed by the same one, or by one that replaced it, which is then pinned. Without `pin` the
    site's key stays what it is: for bundles that the site makes itself.
    Raises IntegrityError for a bundle that is not whole or could not be published, ConflictError for one older than
    what the site holds or a delta that builds on something else, UnavailableError where there is no space.
    """
    store = Store(root)
    with store.changing():
        return take_held(store, folder, key=key, allow_rollback=allow_rollback, pin=pin, progress=progress)


def take_held(
    store: Store,
    folder: Path,
    *,
    key: Ed25519PublicKey | None = None,
    allow_rollback: bool = False,
    pin: bool = True,
    progress: Progress = silent,
) -> Imported:
    """Import as `take` does into a store that the caller holds."""
    with space_on(store.root):
        replaced = keychain.read(store.keychain).replaced()
        found = verification.read(folder, key or expected_key(store), replaced)
        _refuse_other_chain(store, found)
        present = store.imported()
        if found.identity in present and _whole(store, found):
            if pin:
                _pin(store, found)
            _forget_superseded(store, found.bundle)
            changed = (allow_rollback or not _superseded(store, found)) and store.choose(found.identity, found.bundle)
            return Imported(found.identity, changed=changed, media=_media(found))
        # what its list says already, before anything is copied
        if problems := kinds.check([found.bundle], lambda _: None):
            raise IntegrityError.of(problems)
        if not allow_rollback:
            _refuse_older(found.bundle, present, folder)
        DiskLimit([store.root], settings.disk_stop_percent()).refuse_where_full("an import")
        arrival = Arrival(store, found)
        if key is None:
            arrival.require_same_maker()
        _require_base(arrival)
        _require_space(arrival)
        kept = found.of_set or arrival.media.exists()
        try:
            with space_on(store.root):
                missing, damaged = _collect(arrival, progress)
        except PenstockError:
            # an interruption leaves what was collected for the next run; a refusal leaves nothing but media
            if not kept:
                shutil.rmtree(arrival.folder, ignore_errors=True)
                _forget_empty(store.incoming)
            raise
        if missing or damaged:
            return Imported(found.identity, True, False, _media(found), missing, damaged)
        if pin:
            _pin(store, found)
        arrival.commit()
        store.choose(found.identity, found.bundle)
        _forget_superseded(store, found.bundle)
        return Imported(found.identity, changed=True, media=_media(found))


def expected_key(store: Store) -> Ed25519PublicKey | None:
    """Return the key that this site's bundles are signed with, once it is known: by an import, or by the installer."""
    for path in (store.pinned_key, settings.installer_key()):
        if path.exists():
            return ed25519.read_public(path.read_bytes(), str(path))
    return None


def _collect(arrival: Arrival, progress: Progress) -> tuple[list[int], list[int]]:
    """Take over what is good; return the media that are still missing and those that came damaged.

    Raises IntegrityError for what is not good, unless another copy of it came already.
    """
    found = arrival.found
    extra, broken = verification.foreign(found), verification.damaged(found)
    if extra or (broken and not found.of_set):
        raise IntegrityError.of([*extra, *broken.values()])
    problems = [*broken.values(), *arrival.collect(broken, progress)]
    lacking = arrival.lacking()
    if problems and (lacking or not found.of_set):
        raise IntegrityError.of(problems)
    if lacking and not found.of_set:
        raise IntegrityError("was changed while it was read", where=str(found.folder), hint=bundles.HINT)
    if not lacking and (bad := arrival.check(progress) or kinds.check([found.bundle], arrival.blob)):
        raise IntegrityError.of(bad)
    return arrival.lacking_media() if lacking else ([], [])


def _media(found: Verified) -> int:
    return found.medium.count if found.medium else 1


def _pin(store: Store, found: Verified) -> None:
    """Remember the bundle's key as the one of this site, and what it replaced."""
    if found.chain.rotations:
        # before the key: when this is interrupted the old key is refused already
        _keep(store.keychain, keychain.encode(found.chain))
    _keep(store.pinned_key, ed25519.encode_public(found.key))
    flush([store.keys])


def _keep(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        files.write(path, content)


def _whole(store: Store, found: Verified) -> bool:
    """Say whether every blob of a bundle is in the store in full length, and what a delta brings is sound there.

    The receipt of a delta leaves out what is damaged at the site, so what it brings may be there and no good.
    """
    doubtful = found.medium.carried() if found.medium and found.medium.since else set()
    return all(_has(store, sha256, size) for sha256, size in found.bundle.sizes().items()) and all(
        reads_as(store.blobs / blob, blob) for blob in doubtful
    )


def _has(store: Store, sha256: str, size: int) -> bool:
    path = store.blobs / sha256
    return path.is_file() and path.stat().st_size == size


def _refuse_other_chain(store: Store, found: Verified) -> None:
    """Raise IntegrityError where the chain of keys would make the site forget keys that were replaced."""
    if found.chain.forgets(keychain.read(store.keychain)):
        raise IntegrityError(
            "the chain of keys is not the one that this site knows",
            where=str(found.folder / bundles.KEYS),
            hint=bundles.HINT,
        )


def _superseded(store: Store, found: Verified) -> bool:
    """Say whether another bundle of that name counts, which is not older; what came last of one moment counts."""
    name, present = found.bundle.name, age(found.bundle)
    counts = [held for identity, held in store.newest().items() if identity != found.identity]
    return any(held.name == name and age(held) >= present for held in counts)


def _newer(bundle: Bundle, present: dict[str, Bundle]) -> list[Bundle]:
    return [old for old in present.values() if old.name == bundle.name and age(old) > age(bundle)]


def _refuse_older(bundle: Bundle, present: dict[str, Bundle], folder: Path) -> None:
    """Raise ConflictError where the site holds a newer bundle of that name: by version, then by time of build."""
    if newer := _newer(bundle, present):
        newest = max(newer, key=age)
        raise ConflictError(
            f"the site holds {bundle.name} {newest.version} of {newest.created}, which is newer than "
            f"{bundle.version} of {bundle.created}",
            where=str(folder),
            hint="import a newer bundle, or say --allow-rollback",
        )


def _require_base(arrival: Arrival) -> None:
    """Raise ConflictError where a delta builds on blobs that the site does not hold."""
    medium = arrival.found.medium
    if medium is None or medium.since is None:
        return
    base = arrival.found.bundle.sizes().keys() - medium.carried()
    labels = arrival.found.labels()
    missing = sorted(labels[blob] for blob in base & arrival.lacking())
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise ConflictError(
            f"the delta was made for receipt {medium.since.serial} of the site {medium.since.site[:16]}; "
            f"this site does not hold {', '.join(missing[:SHOWN])}{more}",
            where=str(arrival.found.folder),
            hint="make a new receipt here and build the delta with it, or carry the full bundle",
        )


def _require_space(arrival: Arrival) -> None:
    """Raise UnavailableError where the blobs that are still missing do not fit."""
    missing = arrival.space()
    free = shutil.disk_usage(arrival.store.root).free
    if missing > free:
        raise UnavailableError(
            f"the bundle needs {missing / 1e6:.0f} MB, only {free / 1e6:.0f} MB are free",
            where=str(arrival.store.root),
            hint="free some space, then run it again",
        )


def _forget_superseded(store: Store, bundle: Bundle) -> None:
    """Delete the arrivals of bundles that are not newer than the imported one, or of none that can be told."""
    for folder in store.incoming.glob("*"):
        try:
            path = folder / "record" / bundles.LIST
            arrived = bundles.decode(path.read_bytes(), str(path))
        except (OSError, PenstockError):
            shutil.rmtree(folder)
            continue
        if arrived.name == bundle.name and age(arrived) <= age(bundle):
            shutil.rmtree(folder)
    _forget_empty(store.incoming)


def _forget_empty(folder: Path) -> None:
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
