"""What a lock and a bundle say about their contents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from reservoir.manifest import Sha256

Kind = Literal["python", "debian", "image", "file"]
# a name that can stand in a folder: nothing in a bundle may point outside of it
Filename = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+~!-]*$", max_length=255)]
# images have folders in their names, and none leads upwards or to the root
ArtifactName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$", max_length=255)
]


class Model(BaseModel):
    """Base of machine-written documents: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetRecord(Model):
    """The kind of machine that artifacts are for."""

    name: str
    os: str
    release: Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
    arch: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+$")]
    python: str


class Artifact(Model):
    """One file that goes into a bundle. `size` counts bytes; `origin` says where it came from, without credentials."""

    kind: Kind
    name: ArtifactName
    version: str
    filename: Filename
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    origin: str
    targets: list[str]
    metadata: dict[str, Any] = {}


class Bundle(Model):
    """The content of `bundle.json`; `installer` holds the hashes of the files that start an installation."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
    created: str
    targets: list[TargetRecord]
    artifacts: list[Artifact]
    installer: dict[Filename, Sha256] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def of_kind(self, kind: Kind) -> list[Artifact]:
        """Return the artifacts of one kind, in the bundle's order."""
        return [artifact for artifact in self.artifacts if artifact.kind == kind]

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each blob by its hash."""
        return {artifact.sha256: artifact.size for artifact in self.artifacts}


class LockedProject(Model):
    """A local project: its wheel is made at build, so the lock holds what its dependencies were."""

    name: str
    path: str
    extras: list[str]
    dependencies: Sha256


class LockedImage(Model):
    """The exact packages of an image: hashes of the base system and of what is installed on top."""

    name: str
    tag: str
    base: list[Sha256]
    packages: list[Sha256]


class Lock(Model):
    """The content of `reservoir.lock`: the complete closure of a manifest."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    manifest: Sha256
    artifacts: list[Artifact]
    projects: list[LockedProject] = []
    images: list[LockedImage] = []

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def of_kind(self, kind: Kind) -> list[Artifact]:
        """Return the artifacts of one kind, in the lock's order."""
        return [artifact for artifact in self.artifacts if artifact.kind == kind]
