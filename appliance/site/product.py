"""The product's bundle that a site is deployed from: that of a folder, or the one that its reservoir holds already."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

from common.errors import ConflictError, NotFoundError
from common.progress import Progress
from reservoir.bundle import bundles
from reservoir.bundle.verification import verify
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.intake.trust import expected_key
from reservoir.publication.due import due, require_sound


def listed(folder: Path | None, root: Path) -> tuple[str, Bundle]:
    """Return identity and list of the bundle in `folder`; without one of the product in the reservoir at `root`.

    Raises NotFoundError where there is none.
    """
    if folder is not None:
        signed = bundles.read_signed(folder, None)
        return bundles.identity(signed.bundle, signed.content), signed.bundle
    identity, bundle = _held(root)
    require_sound(Store(root), identity, read=False)
    return identity, bundle


@dataclass(frozen=True)
class Product:
    """A bundle whose files have been read: its identity, its list, and the Penstock in it, if this folder has that."""

    identity: str
    bundle: Bundle
    wheel: Path | None


def verified(folder: Path | None, root: Path, progress: Progress) -> Product:
    """Return the same bundle after each of its files was read and found to be the signed one."""
    if folder is not None:
        found = verify(folder, expected_key(Store(root)), progress)
        return Product(found.identity, found.bundle, found.blob(own(found.bundle).sha256))
    store, (identity, bundle) = Store(root), _held(root)
    require_sound(store, identity, read=True, progress=progress)
    return Product(identity, bundle, store.blobs / own(bundle).sha256)


def own(bundle: Bundle) -> PythonArtifact:
    """Return the Penstock that the nodes install."""
    if found := _penstock(bundle):
        return found
    raise NotFoundError(
        "the bundle holds no penstock", where=bundles.LIST, hint="deploy from a bundle of the product's own manifest"
    )


def require_installed(bundle: Bundle, folder: Path | None) -> None:
    """Raise ConflictError where a bundle brings a newer Penstock than this machine has, which knows nothing of it.

    An older one is what a site went back to.
    """
    found, mine = _penstock(bundle), version("penstock")
    if found and Version(found.version) > Version(mine):
        raise ConflictError(
            f"the bundle brings Penstock {found.version}, and this machine has {mine}",
            where=str(folder or bundles.LIST),
            hint=f"run `penstock site upgrade {folder or 'BUNDLE'}`, then the same command again",
        )


def _held(root: Path) -> tuple[str, Bundle]:
    """Return identity and list of the product's bundle that the reservoir serves, or will."""
    for identity, bundle in due(Store(root)).items():
        if _penstock(bundle):
            return identity, bundle
    raise NotFoundError(
        "no bundle of the reservoir holds penstock", where=str(root), hint="name the folder of a bundle with --bundle"
    )


def _penstock(bundle: Bundle) -> PythonArtifact | None:
    return next((each for each in bundle.of_kind(PythonArtifact) if each.name == "penstock"), None)
