from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from reservoir.contents.artifact import (
    DebianArtifact,
    FileArtifact,
    KeyMetadata,
    RpmArtifact,
    RpmPart,
    of_kind,
)
from tests.unit.reservoir.parts import ARTIFACT

COMMON = {
    "name": "thing",
    "version": "1",
    "filename": "thing-1",
    "sha256": "0" * 64,
    "size": 1,
    "origin": "made for a test",
    "targets": ["debian12"],
}


def said(kind: str, **metadata: object) -> dict[str, object]:
    return {"kind": kind, **COMMON, "metadata": metadata}


def test_the_kind_chooses_the_model() -> None:
    package = ARTIFACT.validate_python(said("debian", stanza="Package: thing\n"))
    assert isinstance(package, DebianArtifact)
    assert package.metadata.stanza == "Package: thing\n"
    part = ARTIFACT.validate_python(said("rpm-part", part="key", text="…"))
    assert isinstance(part, RpmPart)
    assert isinstance(part.metadata, KeyMetadata)
    assert of_kind([package, part], DebianArtifact) == [package]


@pytest.mark.parametrize("kind", ["snap", "", "Debian"])
def test_a_kind_that_nobody_knows_is_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match="kind"):
        ARTIFACT.validate_python(said(kind))


@pytest.mark.parametrize(
    ("wrong", "lacking"),
    [
        (said("debian"), "stanza"),
        (said("rpm-part", part="module", text="…"), "stream"),
        (said("image", tag=1, digest="", session=True, media_type="", architectures=[]), "tag"),
    ],
)
def test_what_publication_would_miss_is_told_at_once(wrong: dict[str, object], lacking: str) -> None:
    with pytest.raises(ValidationError, match=f"the metadata of thing-1 lacks {lacking}"):
        ARTIFACT.validate_python(wrong)


@pytest.mark.parametrize(
    "document",
    [
        said("rpm"),
        said("rpm", arch="noarch"),
        said("python", extras=[]),
        said("file", of_a_later_release={"a": [1]}),
        said("image", tag="1", digest="", session=False, media_type="", architectures=["amd64"]),
    ],
)
def test_what_is_read_is_written_again_with_the_same_bytes(document: dict[str, object]) -> None:
    """Locks of other releases may say less, or more."""
    text = json.dumps(document)
    assert json.dumps(ARTIFACT.validate_json(text).model_dump(mode="json")) == text


def test_what_was_not_said_has_its_default_and_is_not_written() -> None:
    assert RpmArtifact(**COMMON).metadata.license == ""  # type: ignore[arg-type]
    assert FileArtifact(**COMMON).model_dump()["metadata"] == {}  # type: ignore[arg-type]
