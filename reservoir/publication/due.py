"""Bundles that a site serves from its store alone, without their media: which they are, and that they are sound."""

from __future__ import annotations

from contextlib import suppress

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common.errors import ConflictError, IntegrityError, NotFoundError, Problem
from common.progress import Progress, counter, silent
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import reads_as
from reservoir.download.threads import in_threads
from reservoir.intake.store import Store
from reservoir.intake.trust import Known, known
from reservoir.publication.publish import record_of
from reservoir.signing import ed25519, keychain

_HINT = "carry the bundle here again"
_OTHER_KEY = f"{_HINT}; where the site gave its maker's key up, import one that the present key signed"


def due(store: Store) -> dict[str, Bundle]:
    """Return the bundles that an unattended publication serves, by identity: the newest, or what was gone back to.

    Raises NotFoundError where nothing was imported.
    """
    found = store.newest()
    if store.rolled_back():
        names = record_of(store.current)["bundles"]
        found = {identity: bundle for identity, bundle in store.imported().items() if identity in names}
    if not found:
        raise NotFoundError(
            "nothing was imported yet", where=str(store.root), hint="name the folder of a bundle with --bundle"
        )
    return found


def require_sound(store: Store, identity: str, *, read: bool, progress: Progress = silent) -> None:
    """Raise an error unless a bundle of the store is signed by the maker that the site knows, and all of it is there.

    Files have to have their lengths; with `read` each is read, and has to have its hash.
    """
    folder = store.bundles / identity
    bundle = _signed(store, identity)
    sizes = bundle.sizes()
    note = counter("verify", sum(sizes.values()), progress)

    def fault(sha256: str) -> str:
        path = store.blobs / sha256
        if not path.is_file():
            return "is missing"
        sound = path.stat().st_size == sizes[sha256] and (not read or reads_as(path, sha256))
        note(sizes[sha256])
        return "" if sound else "is damaged"

    names = {artifact.sha256: artifact.filename for artifact in bundle.artifacts}
    blobs = sorted(sizes)
    faults = zip(blobs, in_threads(fault, blobs), strict=True)
    if problems := [Problem(str(folder), f"{names.get(blob, blob)} {said}", _HINT) for blob, said in faults if said]:
        raise IntegrityError.of(problems)


def _signed(store: Store, identity: str) -> Bundle:
    """Return a bundle's list after its name and its signature were checked."""
    folder, found = store.bundles / identity, known(store)
    if found is None:
        raise ConflictError("the site knows no maker of bundles", where=str(store.pinned_key), hint=_HINT)
    content, signature = (folder / bundles.LIST).read_bytes(), (folder / bundles.SIGNATURE).read_bytes()
    _require_maker([found.key, *_replaced(found)], content, signature, str(folder / bundles.SIGNATURE))
    bundle = bundles.decode(content, str(folder / bundles.LIST))
    if bundles.identity(bundle, content) != identity:
        raise IntegrityError("the list is that of another bundle", where=str(folder / bundles.LIST), hint=_HINT)
    return bundle


def _replaced(found: Known) -> list[Ed25519PublicKey]:
    """Return the keys that one replaced by its maker's own statements: the site took bundles of these before."""
    if not found.chain.rotations or found.chain.rotations[-1].new != keychain.raw(found.key):
        return []
    return [Ed25519PublicKey.from_public_bytes(bytes.fromhex(old)) for old in found.chain.replaced()]


def _require_maker(keys: list[Ed25519PublicKey], content: bytes, signature: bytes, where: str) -> None:
    """Raise IntegrityError unless one of the keys made a signature."""
    for key in keys[1:]:
        with suppress(IntegrityError):
            ed25519.check(key, content, signature, where, _OTHER_KEY)
            return
    ed25519.check(keys[0], content, signature, where, _OTHER_KEY)
