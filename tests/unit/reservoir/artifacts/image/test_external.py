"""What a lock takes of an image in a registry; the registry answers from a folder of blobs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from common import process
from common.errors import ConflictError, InputError
from common.progress import silent
from reservoir.artifacts.image import cosign, oci
from reservoir.artifacts.image.external import Puller
from reservoir.artifacts.image.signed import signers
from reservoir.contents.artifact import ImageArtifact, ImagePart, of_kind
from reservoir.download.cache import Cache
from reservoir.manifest.model import ExternalImage
from tests.unit.reservoir.parts import image_blobs

SOURCE = "docker://registry:5000/team/tool:1"


class Answers:
    """What skopeo says of the one image below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = ""
        self.signatures = b""

    def __call__(self, words: Sequence[str], **_: Any) -> Iterator[bytes]:
        if words[-1].endswith(".sig"):
            yield self.signatures
            return
        sha256 = words[-1].partition("@sha256:")[2] or self.top
        content = (self.folder / sha256).read_bytes()
        config = oci.read(content, "").config
        yield (self.folder / config.sha256).read_bytes() if "--config" in words and config else content


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    (tmp_path / "registry").mkdir()
    answers = Answers(tmp_path / "registry")
    monkeypatch.setattr(process, "require", lambda program, _: program)
    monkeypatch.setattr(process, "stream", answers)
    return answers


def puller(folder: Path, *architectures: str, **more: Any) -> Puller:
    words = {"name": "ext/tool", "tag": "1", "source": SOURCE, "architectures": architectures} | more
    image = ExternalImage.model_validate(words)
    return Puller(image, folder, "m.yml: external_images[0]", Cache(folder / "cache"), silent)


def lock(folder: Path, *architectures: str, **more: Any) -> tuple[ImageArtifact, list[ImagePart]]:
    found = puller(folder, *architectures, **more).lock(["debian12"])
    (locked,) = of_kind(found, ImageArtifact)
    return locked, of_kind(found, ImagePart)


def test_all_architectures_keep_the_index(registry: Answers, tmp_path: Path) -> None:
    registry.top = image_blobs(registry.folder, architectures=("amd64", "arm64"))
    image, parts = lock(tmp_path)
    assert image.sha256 == registry.top
    assert image.metadata.architectures == ["amd64", "arm64"]
    assert {image.sha256, *(part.sha256 for part in parts)} == {path.name for path in registry.folder.iterdir()}
    layer = next(part for part in parts if part.name == "layer")
    assert not (tmp_path / "cache/blobs" / layer.sha256).exists(), "layers are the build's business"


def test_one_of_several_is_its_own_manifest(registry: Answers, tmp_path: Path) -> None:
    registry.top = image_blobs(registry.folder, architectures=("amd64", "arm64"))
    entries = json.loads((registry.folder / registry.top).read_text())["manifests"]
    image, parts = lock(tmp_path, "arm64")
    assert image.metadata.digest == entries[1]["digest"]
    assert [part.name for part in parts] == ["layer", "configuration"]


def test_several_of_more_keep_their_entries(registry: Answers, tmp_path: Path) -> None:
    registry.top = image_blobs(registry.folder, architectures=("amd64", "arm64", "s390x"))
    entries = json.loads((registry.folder / registry.top).read_text())["manifests"]
    image, _ = lock(tmp_path, "arm64", "amd64")
    assert json.loads(image.metadata.made or "")["manifests"] == entries[:2]
    assert oci.digest((image.metadata.made or "").encode()) == image.metadata.digest != f"sha256:{registry.top}"


@pytest.mark.parametrize("there", [("amd64",), ("amd64", "s390x")])
def test_an_architecture_that_is_not_there(registry: Answers, tmp_path: Path, there: tuple[str, ...]) -> None:
    registry.top = image_blobs(registry.folder, architectures=there)
    told = rf"m.yml: external_images\[0\]: {SOURCE} has no arm64\. Hint: choose from: {', '.join(there)}"
    with pytest.raises(InputError, match=told):
        lock(tmp_path, "arm64")


def test_an_index_of_indexes_is_refused(registry: Answers, tmp_path: Path) -> None:
    inner = image_blobs(registry.folder, architectures=("amd64", "arm64"))
    size = (registry.folder / inner).stat().st_size
    entry = {"mediaType": oci.INDEX, "digest": f"sha256:{inner}", "size": size}
    outer = oci.encode({"schemaVersion": 2, "manifests": [entry]})
    registry.top = oci.digest(outer).removeprefix("sha256:")
    (registry.folder / registry.top).write_bytes(outer)
    with pytest.raises(InputError, match=r"index of indexes.*name an inner one"):
        lock(tmp_path)


@pytest.mark.parametrize("architectures", [(), ("arm64",), ("amd64", "arm64")])
def test_signatures_that_were_checked_travel_with_each_key_that_made_one(
    registry: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architectures: tuple[str, ...]
) -> None:
    registry.top = image_blobs(registry.folder, architectures=("amd64", "arm64", "s390x"))
    critical = {"image": {"docker-manifest-digest": f"sha256:{registry.top}"}, "type": cosign.KIND}
    text, layers = json.dumps({"critical": critical}).encode(), []
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("a.pub", "b.pub", "stranger.pub")}
    for key in (keys["stranger.pub"], keys["a.pub"], keys["b.pub"]):
        value = base64.b64encode(key.sign(text, ec.ECDSA(SHA256()))).decode()
        said = {"mediaType": cosign.PAYLOAD, "digest": oci.digest(text), "size": len(text)}
        layers.append(said | {"annotations": {cosign.ANNOTATION: value}})
    registry.signatures = oci.encode({"layers": layers})
    monkeypatch.setattr(Puller, "_copy", lambda self, *_: self.cache.keep(text)[0])
    for name in ("a.pub", "b.pub"):
        (tmp_path / name).write_text(cosign.write_key(keys[name].public_key()))
    image, _ = lock(tmp_path, *architectures, signed_by=["b.pub", "a.pub"])
    assert len(image.metadata.signatures) == 2
    assert signers(image, {name: key.public_key() for name, key in keys.items()}) == ["a.pub", "b.pub"]
    unsigned, _ = lock(tmp_path, *architectures)
    assert image.sha256 == unsigned.sha256
    with pytest.raises(ConflictError, match=r"the lock has no signature of ext/tool:1 by a\.pub.*make a new lock"):
        puller(tmp_path, *architectures, signed_by=["a.pub"]).fetch(unsigned)
