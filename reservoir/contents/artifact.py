"""Artifacts: the files that go into a bundle, each kind with the metadata that publication needs of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)

from common.strict import StrictModel
from reservoir.manifest.model import Sha256

# a name that can stand in a folder: nothing in a bundle may point outside of it
Filename = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+~^!-]*$", max_length=255)]
# images have folders in their names, and none leads upwards or to the root
ArtifactName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$", max_length=255)
]

# what stands in a document for a kind; the models below have one each
KindName = Literal["python", "debian", "rpm", "rpm-part", "image", "image-part", "file"]


class Metadata(BaseModel):
    """What one kind of artifact says beside the rest; what another release says of it stays, and is not looked at."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @model_serializer(mode="wrap")
    def _as_said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write what was said and nothing more, so that what is read and written again keeps its bytes."""
        return {key: value for key, value in write(self).items() if key in self.model_fields_set}


class _Artifact(StrictModel):
    """One file that goes into a bundle. `size` counts bytes; `origin` says where it came from, without credentials."""

    kind: KindName
    name: ArtifactName
    version: str
    filename: Filename
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    origin: str
    targets: list[str]
    metadata: Metadata = Metadata()

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, said: Any, read: ModelWrapValidatorHandler[_Artifact]) -> _Artifact:
        """Say at once what publication would miss later."""
        try:
            return read(said)
        except ValidationError as error:
            places = [part["loc"] for part in error.errors()]
            if not isinstance(said, dict) or not all(place[0] == "metadata" for place in places):
                raise
            lacking = ", ".join(dict.fromkeys(str(place[-1]) for place in places))
            raise ValueError(f"the metadata of {said.get('filename')} lacks {lacking}") from error


class PythonMetadata(Metadata):
    """The extras with which a local project's wheel is installed."""

    extras: list[str] = []


class PythonArtifact(_Artifact):
    """A wheel."""

    kind: Literal["python"] = "python"
    metadata: PythonMetadata = PythonMetadata()


class DebianMetadata(Metadata):
    """The package's entry in an index, without place, size and hashes."""

    stanza: str


class DebianArtifact(_Artifact):
    """A Debian package."""

    kind: Literal["debian"] = "debian"
    metadata: DebianMetadata


class RpmMetadata(Metadata):
    """What an RPM package is held against: `keys` names the parts with its source's keys, `source_rpm` is a file.

    `source_epoch` is the epoch of the source package, where its repository tells; the file's name does not.
    """

    arch: str = ""
    keys: list[str] = []
    license: str = ""
    source_rpm: str = ""
    source_epoch: str | None = None


class RpmArtifact(_Artifact):
    """An RPM package."""

    kind: Literal["rpm"] = "rpm"
    metadata: RpmMetadata = RpmMetadata()


class KeyMetadata(Metadata):
    """A key that signed packages."""

    part: Literal["key"]
    text: str


class ModuleMetadata(Metadata):
    """A stream of a module that was chosen."""

    part: Literal["module"]
    stream: str
    text: str


class RpmPart(_Artifact):
    """What dnf needs beside packages: the keys that signed them, the modules that were chosen."""

    kind: Literal["rpm-part"] = "rpm-part"
    metadata: Annotated[KeyMetadata | ModuleMetadata, Field(discriminator="part")]


class ImageSignature(Metadata):
    """A signature of cosign and the payload that it is over, both in base64, and the public key of who made it."""

    payload: str
    signature: str
    key: str


class ImageMetadata(Metadata):
    """An image as registries know it; `made` is the index where only some of its architectures were taken.

    `signatures` are those that were checked when it was locked; `signed` is the index that they are about, where only
    a part of that was taken.
    """

    tag: str
    digest: str
    session: bool
    media_type: str
    architectures: list[str]
    made: str | None = None
    signed: str | None = None
    signatures: list[ImageSignature] = []


class ImageArtifact(_Artifact):
    """The manifest of an image, or its index."""

    kind: Literal["image"] = "image"
    metadata: ImageMetadata


class ImagePartMetadata(Metadata):
    """The media type of a part."""

    media_type: str = ""


class ImagePart(_Artifact):
    """A part of images: a configuration, a layer, or a manifest below an index."""

    kind: Literal["image-part"] = "image-part"
    metadata: ImagePartMetadata = ImagePartMetadata()


class FileArtifact(_Artifact):
    """A file that is served as it is."""

    kind: Literal["file"] = "file"


Artifact = Annotated[
    PythonArtifact | DebianArtifact | RpmArtifact | RpmPart | ImageArtifact | ImagePart | FileArtifact,
    Field(discriminator="kind"),
]
A = TypeVar("A", bound=_Artifact)


def of_kind(artifacts: Iterable[Artifact], *kinds: type[A]) -> list[A]:
    """Return the artifacts of some kinds, in their order."""
    return [artifact for artifact in artifacts if isinstance(artifact, kinds)]
