"""The protocol of a kind of artifact: what it is given, and what it gives back, on its way from manifest to site."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache as cached
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

import httpx

from common.errors import Problem
from common.files import LONGEST_NAME
from common.progress import Progress
from reservoir.contents.artifact import A, Artifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.lock import Lock, LockedImage, LockedProject, LockedSdist
from reservoir.contents.target import SetVersions, TargetRecord
from reservoir.download import fetch, indexes
from reservoir.download.cache import Cache
from reservoir.download.indexes import Indexes
from reservoir.download.threads import in_threads
from reservoir.manifest.model import Image, Manifest, Target

A_contra = TypeVar("A_contra", contravariant=True)
K = TypeVar("K", bound=Hashable)
# where the file with a hash lies, or nothing where it is not at hand
Find = Callable[[str], Path | None]
AGAIN = "get the bundle again from its maker"
DOWNLOADS = 4
# how many targets are resolved side by side: they wait for programs and for the network
TARGETS = 4


@dataclass(frozen=True)
class Resolving:
    """What is to be resolved: the manifest at `path`.

    Downloads that a resolver needs lie in `cache`; `indexes` says where Python packages come from, by default from
    where this machine takes them.
    """

    manifest: Manifest
    path: Path
    cache: Cache
    progress: Progress
    indexes: Callable[[], Indexes] = field(default_factory=lambda: cached(indexes.machine))

    def where(self, field: str) -> str:
        """Return the words by which errors name a field of the manifest."""
        return f"{self.path}: {field}"

    def images(self, target: Target) -> list[tuple[int, Image]]:
        """Return the images that are built of a target's packages, each with its place in the manifest."""
        return [(i, image) for i, image in enumerate(self.manifest.images) if image.target == target.name]


@dataclass(frozen=True)
class Resolved:
    """What one kind has of everything that a manifest needs: artifacts, and its part of the rest."""

    artifacts: list[Artifact] = field(default_factory=list)
    images: list[LockedImage] = field(default_factory=list)
    version_sets: list[SetVersions] = field(default_factory=list)
    projects: list[LockedProject] = field(default_factory=list)
    sdists: list[LockedSdist] = field(default_factory=list)

    @classmethod
    def of(cls, found: Sequence[Resolved]) -> Resolved:
        """Return what was found in parts."""
        return cls(
            [artifact for one in found for artifact in one.artifacts],
            [image for one in found for image in one.images],
            [versions for one in found for versions in one.version_sets],
            [project for one in found for project in one.projects],
            [sdist for one in found for sdist in one.sdists],
        )


@dataclass(frozen=True)
class Order:
    """What a build needs of a lock: the manifest in `folder` says from where, all of it goes into `cache`.

    `indexes` says where Python packages come from, `client` opens a connection that knows every user and password;
    `note` hears of the length of every piece.
    """

    manifest: Manifest
    locked: Lock
    folder: Path
    cache: Cache
    progress: Progress
    indexes: Callable[[], Indexes]
    client: Callable[[], httpx.Client]
    note: Callable[[int], None] = lambda _: None

    def download(self, missing: Sequence[Artifact]) -> None:
        """Bring artifacts into the cache from where they lie."""
        if missing:
            with self.client() as http:
                in_threads(lambda one: self._download(http, one), missing, DOWNLOADS)

    def _download(self, http: httpx.Client, one: Artifact) -> None:
        fetch.fetch(http, self.cache, one.origin, sha256=one.sha256, size=one.size, note=self.note)


@dataclass(frozen=True)
class Staging:
    """A publication of `bundles` in the making: its trees go below `tree`, the keys that nodes need below `keys`.

    `place` puts the file with a hash at a path, `secret` signs, `created` is the time of the newest bundle.
    """

    bundles: list[Bundle]
    tree: Path
    keys: Path
    place: Callable[[str, Path], None]
    secret: bytes
    created: datetime
    progress: Progress


class Purl(NamedTuple):
    """The parts of a package URL."""

    type: str
    namespace: str | None
    name: str
    version: str
    qualifiers: dict[str, str]


@dataclass(frozen=True)
class Description:
    """What others call an artifact: its package URL, what it is in a bill of materials, and in advisories.

    `advised` are the names and versions by which advisories of `ecosystem` may mean it; without an ecosystem it is not
    known whose they are.
    """

    purl: Purl
    form: Literal["library", "container", "file"]
    advised: Sequence[tuple[str, str]] = ()
    ecosystem: str | None = None


class Kind(Protocol[A_contra]):
    """One kind of artifact: a package of this folder whose module `kind` is this."""

    @property
    def models(self) -> tuple[type, ...]:
        """The models of its artifacts."""

    def resolve(self, resolving: Resolving) -> Resolved:
        """Return the exact artifacts that a manifest needs."""

    def fetch(self, order: Order, missing: Sequence[A_contra]) -> None:
        """Bring what the lock names into the cache, which lacks what is `missing`, and check what hashes do not say."""

    def check(self, bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:
        """Yield why bundles could not be published together: by their lists, and by the files that `find` knows."""

    def publish(self, staging: Staging) -> None:
        """Write the trees that nodes read; raises ConflictError where bundles contradict each other."""

    def describe(self, artifact: A_contra, target: TargetRecord | None) -> Description:
        """Return what others call an artifact, of one target that it is for."""


def too_long(name: str) -> str:
    """Return why no file of a publication can have a name, or nothing."""
    size = len(name.encode())
    return f"a publication has files of {LONGEST_NAME} bytes at most, and one of {size}" if size > LONGEST_NAME else ""


def one_each(
    artifacts: Iterable[A], name: Callable[[A], K], said: Callable[[A], Problem]
) -> tuple[dict[K, A], list[Problem]]:
    """Return the first artifact of each name, and what is `said` of each whose bytes are others than the first's."""
    found: dict[K, A] = {}
    problems = [said(one) for one in artifacts if found.setdefault(name(one), one).sha256 != one.sha256]
    return found, list(dict.fromkeys(problems))


def locked_images(manifest: Manifest, found: Iterable[LockedImage]) -> list[LockedImage]:
    """Return every image of a manifest with the parts that each kind has of it, target by target."""
    parts = list(found)
    locked = []
    for target in manifest.targets:
        for image in manifest.images:
            if image.target == target.name:
                mine = [part for part in parts if (part.name, part.tag) == (image.name, image.tag)]
                locked.append(
                    LockedImage(
                        name=image.name,
                        tag=image.tag,
                        base=[sha256 for part in mine for sha256 in part.base],
                        packages=[sha256 for part in mine for sha256 in part.packages],
                        python=[sha256 for part in mine for sha256 in part.python],
                    )
                )
    return locked
