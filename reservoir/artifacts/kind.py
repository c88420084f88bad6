"""What every resolver is given: the manifest, the target, and where downloads lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from common.progress import Progress
from reservoir.artifacts.python.wheels import Indexes
from reservoir.contents.model import Artifact, HeldVersions, LockedImage
from reservoir.download.cache import Cache
from reservoir.manifest.model import Manifest, Target


@dataclass(frozen=True)
class Scope:
    """One target of the manifest at `path`; without `indexes`, Python packages come from the machine's own."""

    manifest: Manifest
    path: Path
    target: Target
    cache: Cache
    progress: Progress
    indexes: Indexes | None = None

    def where(self, field: str) -> str:
        """Return the words by which errors name a field of the manifest."""
        return f"{self.path}: {field}"


@dataclass(frozen=True)
class Resolved:
    """What a resolver found for a target: artifacts, and the parts of images and tuples that it knows of."""

    artifacts: list[Artifact]
    images: list[LockedImage] = field(default_factory=list)
    holds: list[HeldVersions] = field(default_factory=list)
