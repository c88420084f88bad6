"""Images built inside the closed site, from the packages of its publication and nothing else."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from common.errors import ConflictError, InputError, NotFoundError
from common.progress import Progress, silent
from common.yaml_document import check, parse
from reservoir.artifacts.debian import kind as debian
from reservoir.artifacts.debian import publish as apt_tree
from reservoir.artifacts.image.recipe import Builder
from reservoir.artifacts.kind import Resolved, Resolving, locked_images
from reservoir.artifacts.python import kind as python
from reservoir.bundle import bundles
from reservoir.contents.artifact import Artifact, ImageArtifact
from reservoir.contents.bundle import OWN, Bundle
from reservoir.contents.lock import LockedImage
from reservoir.contents.target import TargetRecord
from reservoir.download.cache import WORK, Cache, link_or_copy
from reservoir.download.indexes import Indexes
from reservoir.intake.store import Store
from reservoir.intake.take import Imported, take_held
from reservoir.intake.trust import Spoken
from reservoir.manifest.model import Image, Manifest, Source, Target
from reservoir.publication.publish import record_of
from reservoir.signing import ed25519

PUBLISHED = "published"


class Recipe(Image):
    """A recipe in a file of its own: what stands under `images` in a manifest."""

    schema_: Annotated[Literal[1], Field(alias="schema")]

    model_config = ConfigDict(populate_by_name=True)


def build(path: Path, root: Path, cache: Cache, timestamp: int, progress: Progress = silent) -> Imported:
    """Build the image of the recipe at `path` from what the site at `root` serves, and take it into the site's store.

    It becomes a small bundle `local-NAME-TAG`, signed with the site's own key, so that publications, rollback and
    prune treat it as any other. The store is held while packages are chosen and while the image is taken in, not while
    it is made. Raises InputError for a bad recipe and for packages that the publication lacks, ConflictError where
    another bundle has that image or the store is being changed, UnavailableError where a program is missing.
    """
    recipe = _read(path)
    store = Store(root)
    if not store.current.is_dir():
        raise NotFoundError("nothing was published yet", where=str(root), hint="run `penstock reservoir publish`")
    with cache.alone(progress):
        # held while blobs are in use that only the store keeps; afterwards the cache has them, and others may go on
        with store.changing():
            current = store.current.resolve()
            record = _target(store, current, recipe, path)
            _refuse_other(store, recipe, path)
            served = partial(_indexes, current)
            resolving = Resolving(_manifest(recipe, record, current), path, cache, progress, served)
            parts, known = _resolve(resolving, recipe, store)
        made = Builder(recipe, resolving.manifest.targets[0], parts, known, cache, progress).make()
        with store.changing(), tempfile.TemporaryDirectory(prefix=WORK, dir=cache.root) as work:
            # another bundle may have come meanwhile
            _refuse_other(store, recipe, path)
            bundle = _bundle(recipe, record, [made.image, *made.parts], timestamp)
            for identity, held in store.newest().items():
                if (held.name, held.artifacts) == (bundle.name, bundle.artifacts):
                    return Imported(identity, changed=False)
            key = ed25519.own_key(store.site_key)
            blobs = [cache.path(blob) for blob in bundle.sizes()]
            folder = bundles.assemble(bundle, blobs, key, Path(work), {})
            return take_held(store, folder, Spoken(key.public_key()), own=True, progress=progress)


def _read(path: Path) -> Recipe:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="give the file of a recipe") from error
    return check(Recipe, parse(text, str(path)))


def _target(store: Store, current: Path, recipe: Recipe, path: Path) -> TargetRecord:
    """Return the target of the recipe as the published bundles describe it."""
    imported = store.imported()
    served = [imported[name] for name in record_of(current)["bundles"] if name in imported]
    known = {target.name: target for bundle in served for target in bundle.targets if target.os == "debian"}
    if recipe.target not in known:
        raise InputError(
            f"no published target is named {recipe.target!r}",
            where=f"{path}: target",
            hint=f"use one of: {', '.join(sorted(known))}",
        )
    return known[recipe.target]


def _refuse_other(store: Store, recipe: Recipe, path: Path) -> None:
    """Raise ConflictError where the image came in another bundle, or its own bundle would replace another image's."""
    for bundle in store.newest().values():
        images = [(image.name, image.version) for image in bundle.of_kind(ImageArtifact)]
        if bundle.name == _name(recipe) and (recipe.name, recipe.tag) not in images:
            raise ConflictError(
                f"the bundle {bundle.name} is that of {', '.join(f'{name}:{tag}' for name, tag in images)}",
                where=f"{path}: tag",
                hint="choose another name or tag",
            )
        if (recipe.name, recipe.tag) in images and bundle.name != _name(recipe):
            raise ConflictError(
                f"the bundle {bundle.name} has an image {recipe.reference} already",
                where=f"{path}: tag",
                hint="choose another name or tag",
            )


def _name(recipe: Recipe) -> str:
    """Return the name of the recipe's bundle."""
    return OWN + recipe.reference.lower().translate(str.maketrans("/:", "--")).rstrip("._-")


def _of_site(record: TargetRecord) -> Target:
    """Return the target with the publication as its only source."""
    return Target(
        name=record.name,
        release=record.release,
        arch="arm64" if record.arch == "arm64" else "amd64",
        python=record.python,
        bootstrap=True,
        sources=[PUBLISHED],
    )


def _manifest(recipe: Recipe, record: TargetRecord, current: Path) -> Manifest:
    """Return the manifest that asks for nothing but the recipe's image."""
    source = Source(
        name=PUBLISHED,
        kind="debian",
        url=(current / "apt").as_uri(),
        keys=[apt_tree.KEYRING],
        suite=record.release,
        components=["main"],
    )
    # a manifest's keys lie beside it; this one is the site's, wherever the recipe lies
    source = source.model_copy(update={"keys": [str(current / "keys" / apt_tree.KEYRING)]})
    wanted = {"schema": 1, "name": "local", "version": "1", "targets": [_of_site(record)]}
    return Manifest.model_validate(wanted | {"sources": [source], "images": [recipe]})


def _indexes(current: Path) -> Indexes:
    """Return the publication's Python packages as the only index."""
    return Indexes(index=(current / "pypi/simple").as_uri(), extra=[], links=[], offline=False, certificates=None)


def _resolve(resolving: Resolving, recipe: Recipe, store: Store) -> tuple[LockedImage, dict[str, Artifact]]:
    """Return the image's exact parts, which the store has, and bring them into the cache."""
    resolving.progress(f"resolve {recipe.reference}")
    found = Resolved.of([debian.resolve(resolving), python.resolve(resolving)])
    (image,) = locked_images(resolving.manifest, found.images)
    known = {artifact.sha256: artifact for artifact in found.artifacts}
    for blob, artifact in known.items():
        if not resolving.cache.has(blob, artifact.size):
            link_or_copy(store.blobs / blob, resolving.cache.path(blob))
    return image, known


def _bundle(recipe: Recipe, record: TargetRecord, artifacts: list[Artifact], timestamp: int) -> Bundle:
    """Return the list of the image's own bundle; the time is its version, so that a later build counts as newer."""
    created = datetime.fromtimestamp(timestamp, UTC)
    return Bundle(
        name=_name(recipe),
        version=f"{created:%Y.%m.%d.%H%M%S}",
        created=f"{created:%Y-%m-%dT%H:%M:%SZ}",
        targets=[record],
        artifacts=artifacts,
        installer={name: sha256(bundles.installer(name)).hexdigest() for name in bundles.INSTALLER},
    )
