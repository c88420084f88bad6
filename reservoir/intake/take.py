"""Import: from carried disks into the site's store, all of a bundle or nothing of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common.disk_limit import DiskLimit
from common.errors import ConflictError, ForbiddenError, IntegrityError, PenstockError, Problem, UnavailableError
from common.progress import Progress, counter, silent
from reservoir import settings
from reservoir.artifacts import kinds
from reservoir.artifacts.kind import Find
from reservoir.bundle import bundles, expiry, verification
from reservoir.bundle.verification import Verified
from reservoir.contents import version_sets
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import reads_as, space_on
from reservoir.download.threads import in_threads
from reservoir.intake import newest, trust
from reservoir.intake.arrival import Arrival
from reservoir.intake.store import Store, age
from reservoir.intake.trust import Known, Spoken, Trust
from reservoir.scan import image_rules
from reservoir.scan.policy import read_policy
from reservoir.signing import keychain
from reservoir.signing.keychain import Keychain

SHOWN = 16
_OLDER = "import a newer bundle, or this one with `penstock reservoir import --allow-rollback`"


@dataclass(frozen=True)
class Imported:
    """A bundle that the site holds now, whole or as an arrival; `changed` is false where it held it before.

    `new` says that it counts now and did not before; what was only mended is not new.
    `media` counts those of the set. While `complete` is false the bundle does not count yet: the media `missing`
    never came, something of those `damaged` is still lacking. `trust` says how its key came to be trusted; a bundle
    that the site made itself has none. `warning` is what to tell people beside.
    """

    identity: str
    changed: bool
    complete: bool = True
    media: int = 1
    missing: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    new: bool = field(default=False, kw_only=True)
    trust: Trust | None = field(default=None, compare=False)
    warning: str = field(default="", compare=False)


def take(
    folder: Path,
    root: Path,
    *,
    key: Ed25519PublicKey | None = None,
    trust_first: bool = False,
    replace_key: bool = False,
    allow_rollback: bool = False,
    progress: Progress = silent,
) -> Imported:
    """Import the bundle in `folder`, or on the medium, into the store at `root`.

    `allow_rollback` takes an older bundle than the site holds; it is published then, until a newer one is imported.
    What fails leaves the store as it was; of a set of media what is good is kept until the others come.
    Where the site knows no key yet, by an import or from the installer, `key` must be given, or `trust_first` takes
    the one that travels along. It is pinned: later bundles must be signed by the same one, or by one that replaced it,
    which is then pinned; `replace_key` trusts `key` instead.
    Raises IntegrityError for a bundle that is not whole, could not be published, or is signed by a key that nobody
    vouches for, ForbiddenError for images that are not signed as the site's policy asks, ConflictError for one older
    than what the site holds or a delta that builds on something else, UnavailableError where there is no space.
    """
    store = Store(root)
    spoken = Spoken(key, trust_first, replace_key)
    with store.changing():
        return take_held(store, folder, spoken, allow_rollback=allow_rollback, progress=progress)


def take_held(
    store: Store,
    folder: Path,
    spoken: Spoken,
    *,
    own: bool = False,
    allow_rollback: bool = False,
    progress: Progress = silent,
) -> Imported:
    """Import as `take` does into a store that the caller holds.

    `own` is a bundle that the site made itself, signed with the key that is given: whom it trusts stays as it is.
    """
    with space_on(store.root):
        before = None if own else _known(store, spoken)
        now = datetime.now(UTC)
        chain = keychain.read(store.keychain) if own else trust.heeded(before, spoken)
        found = verification.read(
            folder, spoken.key or (before.key if before else None), chain.replaced(), store.decode
        )
        _refuse_other_chain(chain, found)
        trusted = None if own else trust.decide(found, before, spoken)
        progress("look at what the site holds")
        store.mend_list(found.identity, found.content)
        present, held = store.imported(), list(store.newest().values())
        known = found.identity in present
        if known and _whole(store, found, progress):
            if trusted:
                trust.pin(store, found, trusted, before, spoken)
            store.mend_signature(found.identity, found.signature)
            _forget_superseded(store, found.bundle)
            if not own:
                newest.remember(store, found.bundle)
            new = (allow_rollback or not _superseded(store, found)) and store.choose(found.identity, found.bundle)
            warning = expiry.warning(found.bundle, now)
            return Imported(found.identity, new, media=_media(found), new=new, trust=trusted, warning=warning)
        arrival = Arrival(store, found)
        _refuse_before_it_is_copied(arrival, present, may_be_older=allow_rollback or known)
        if spoken.key is None:
            arrival.require_same_maker()
        _require_space(arrival)
        kept = found.of_set or arrival.media.exists()
        try:
            with space_on(store.root):
                missing, damaged = _collect(arrival, kinds.check if known else kinds.check_new, progress)
        except PenstockError:
            # an interruption leaves what was collected for the next run; a refusal leaves nothing but media
            if not kept:
                store.drop_arrival(arrival.folder, ignore_errors=True)
                _forget_empty(store.incoming)
            raise
        if missing or damaged:
            if trusted and before is None:
                # what was spoken for one medium counts for the others
                trust.pin(store, found, trusted, before, spoken)
            return Imported(found.identity, True, False, _media(found), missing, damaged, trusted)
        if trusted:
            trust.pin(store, found, trusted, before, spoken)
        arrival.commit(progress)
        if not own:
            newest.remember(store, found.bundle)
        # what is mended counts as much as it did
        chosen = (allow_rollback or not (known and _superseded(store, found))) and store.choose(
            found.identity, found.bundle
        )
        _forget_superseded(store, found.bundle)
        warning = _warning(found.bundle, held, now)
        new = chosen or not known
        return Imported(found.identity, True, media=_media(found), new=new, trust=trusted, warning=warning)


def _known(store: Store, spoken: Spoken) -> Known | None:
    """Return whom the site trusts; raises IntegrityError, before anything comes, where what it remembers is damaged."""
    newest.read(store)
    return trust.known(store, given_up=spoken.replaces)


def _refuse_before_it_is_copied(arrival: Arrival, present: dict[str, Bundle], *, may_be_older: bool) -> None:
    """Raise an error for what can be told by a bundle's list, and by what the site has."""
    store, found = arrival.store, arrival.found
    if not arrival.folder.exists() and (problems := kinds.check([found.bundle], lambda _: None)):
        raise IntegrityError.of(problems)
    _refuse_unsigned(store, found.bundle)
    if not may_be_older:
        _refuse_older(found.bundle, present, found.folder)
        _refuse_removed(store, found.bundle, found.folder)
    DiskLimit([store.root], settings.disk_stop_percent()).refuse_where_full("an import")
    _require_base(arrival)


def _warning(bundle: Bundle, held: list[Bundle], now: datetime) -> str:
    """Return what to tell people of a new bundle: of its end, and of other lines of packages than those of `held`."""
    leaps = version_sets.leaps(held, bundle)
    said = [f"{one}: nodes take it with their next deploy or `apt upgrade`" for one in leaps]
    return "; ".join(filter(None, [expiry.warning(bundle, now), *said]))


def _collect(
    arrival: Arrival, check: Callable[[Sequence[Bundle], Find], list[Problem]], progress: Progress
) -> tuple[list[int], list[int]]:
    """Take over what is good; return the media that are still missing and those that came damaged.

    `check` says why what is whole could not be published: what is mended is asked no more than what is served.
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
    if not lacking:
        bad = arrival.check(progress)
        progress("check that it can be published")
        if bad := bad or check([found.bundle], arrival.blob):
            raise IntegrityError.of(bad)
    return arrival.lacking_media() if lacking else ([], [])


def _media(found: Verified) -> int:
    return found.medium.count if found.medium else 1


def _whole(store: Store, found: Verified, progress: Progress) -> bool:
    """Say whether every blob of a bundle and every document beside its list is sound in the store: each is read.

    Who carries a bundle here again may do so because something of it is damaged.
    """
    folder, sizes = store.bundles / found.identity, found.bundle.sizes()
    if not all(reads_as(folder / name, sha256) for name, sha256 in found.bundle.attachments.items()):
        return False
    if not all(_has(store, sha256, size) for sha256, size in sizes.items()):
        return False
    note = counter("check what the site has", sum(sizes.values()), progress)

    def sound(blob: str) -> bool:
        good = reads_as(store.blobs / blob, blob)
        note(sizes[blob])
        return good

    return all(in_threads(sound, sorted(sizes)))


def _has(store: Store, sha256: str, size: int) -> bool:
    path = store.blobs / sha256
    return path.is_file() and path.stat().st_size == size


def _refuse_other_chain(known: Keychain, found: Verified) -> None:
    """Raise IntegrityError where the chain of keys would make the site forget keys that were replaced."""
    if found.chain.forgets(known):
        raise IntegrityError(
            "the chain of keys is not the one that this site knows",
            where=str(found.folder / bundles.KEYS),
            hint="ask its maker which key is theirs; to trust that one, whatever the site knows, give it with --key "
            "and say --replace-key",
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
        last = max(newer, key=age)
        raise ConflictError(
            f"the site holds {bundle.name} {last.version} of {last.created}, which is newer than "
            f"{bundle.version} of {bundle.created}",
            where=str(folder),
            hint=_OLDER,
        )


def _refuse_removed(store: Store, bundle: Bundle, folder: Path) -> None:
    """Raise ConflictError where the site took a newer bundle of that name before, and removed it."""
    mark = newest.read(store).get(bundle.name)
    if mark and age(mark) > age(bundle):
        raise ConflictError(
            f"this site took {bundle.name} {mark.version} of {mark.created}, which is newer than "
            f"{bundle.version} of {bundle.created}",
            where=str(folder),
            hint=_OLDER,
        )


def _refuse_unsigned(store: Store, bundle: Bundle) -> None:
    """Raise ForbiddenError where the site has a policy about who signs images, and some of these are not signed so."""
    rules = read_policy(store.policy, kept=True).signed_images if store.policy.exists() else []
    if problems := list(image_rules.judge(bundle, rules)):
        raise ForbiddenError.of(problems)


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
    arrival.forget_unfinished()
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
            store.drop_arrival(folder)
            continue
        if arrived.name == bundle.name and age(arrived) <= age(bundle):
            store.drop_arrival(folder)
    _forget_empty(store.incoming)


def _forget_empty(folder: Path) -> None:
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
