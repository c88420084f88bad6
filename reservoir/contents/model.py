"""What a lock and a bundle say about their contents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from reservoir.manifest.model import Sha256, version_number

# an image is its manifest or index; its parts are configurations, layers and the manifests below an index;
# rpm-parts are what dnf needs beside packages: the keys that signed them, the modules that were chosen
Kind = Literal["python", "debian", "rpm", "rpm-part", "image", "image-part", "file"]
# a name that can stand in a folder: nothing in a bundle may point outside of it
Filename = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+~^!-]*$", max_length=255)]
# images have folders in their names, and none leads upwards or to the root
ArtifactName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$", max_length=255)
]
# what publication reads of an artifact's metadata, by kind
METADATA: dict[str, dict[str, type]] = {
    "debian": {"stanza": str},
    "image": {"tag": str, "digest": str, "session": bool, "media_type": str, "architectures": list},
}


class Model(BaseModel):
    """Base of machine-written documents: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetRecord(Model):
    """The kind of machine that artifacts are for; `python` is absent where it gets no Python packages.

    `osv` is the ecosystem of its packages in security advisories, where the manifest names one.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    os: Literal["debian", "rpm"]
    release: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    arch: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+$")]
    python: str | None = None
    osv: str | None = None


class HeldVersions(Model):
    """A tuple of versions that belong together, as resolved for one target: package name to version."""

    name: str
    target: str
    packages: dict[str, str]


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

    @model_validator(mode="after")
    def _complete(self) -> Artifact:
        """Say at once what publication would miss later."""
        wanted = METADATA.get(self.kind, {})
        missing = [key for key, kind in wanted.items() if not isinstance(self.metadata.get(key), kind)]
        if missing:
            raise ValueError(f"the metadata of {self.filename} lacks {', '.join(missing)}")
        return self


class Bundle(Model):
    """The content of `bundle.json`.

    `installer` holds the hashes of the files that start an installation, `documents` those of what people read beside
    the list: the SBOM, the report of the security checker.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    version: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$"), AfterValidator(version_number)
    ]
    created: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    targets: list[TargetRecord]
    artifacts: list[Artifact]
    holds: list[HeldVersions] = []
    installer: dict[Filename, Sha256] = {}
    documents: dict[Filename, Sha256] = {}

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
    """The exact parts of an image: hashes of the base system, of the packages on top, and of the Python wheels."""

    name: str
    tag: str
    base: list[Sha256]
    packages: list[Sha256]
    python: list[Sha256] = []


class Lock(Model):
    """The content of `reservoir.lock`: the complete closure of a manifest."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    manifest: Sha256
    artifacts: list[Artifact]
    holds: list[HeldVersions] = []
    projects: list[LockedProject] = []
    images: list[LockedImage] = []

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def of_kind(self, kind: Kind) -> list[Artifact]:
        """Return the artifacts of one kind, in the lock's order."""
        return [artifact for artifact in self.artifacts if artifact.kind == kind]
