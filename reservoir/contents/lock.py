"""The content of `reservoir.lock`: the complete closure of a manifest."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from common.strict import StrictModel
from reservoir.contents.artifact import A, Artifact, of_kind
from reservoir.contents.target import SetVersions
from reservoir.manifest.model import Sha256


class LockedProject(StrictModel):
    """A local project: its wheel is made at build, so the lock holds what its dependencies were."""

    name: str
    path: str
    extras: list[str]
    dependencies: Sha256


class LockedFile(StrictModel):
    """A file that a wheel is built from, or the wheel; `url` says where it lies or came from, `size` counts bytes."""

    filename: str
    url: str
    sha256: Sha256
    size: int


class LockedSdist(StrictModel):
    """A wheel that was built from sources, and the wheels that it was built with."""

    source: LockedFile
    tools: list[LockedFile]
    wheel: LockedFile


class LockedImage(StrictModel):
    """The exact parts of an image: hashes of the base system, of the packages on top, and of the Python wheels."""

    name: str
    tag: str
    base: list[Sha256]
    packages: list[Sha256]
    python: list[Sha256] = Field(default_factory=list)


class Lock(StrictModel):
    """The content of `reservoir.lock`: the complete closure of a manifest."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    manifest: Sha256
    artifacts: list[Artifact]
    version_sets: list[SetVersions] = Field(default_factory=list)
    projects: list[LockedProject] = Field(default_factory=list)
    images: list[LockedImage] = Field(default_factory=list)
    sdists: list[LockedSdist] = Field(default_factory=list)

    model_config = ConfigDict(populate_by_name=True)

    def of_kind(self, *kinds: type[A]) -> list[A]:
        """Return the artifacts of some kinds, in the lock's order."""
        return of_kind(self.artifacts, *kinds)
