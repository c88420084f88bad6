"""A site that wants images signed: import and publication refuse by name what is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from common.errors import ForbiddenError, InputError
from common.image_references import HUB
from reservoir.artifacts.image import cosign
from reservoir.bundle import bundles
from reservoir.contents.artifact import Artifact, ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.publication import scanning
from reservoir.publication.publish import publish
from reservoir.publication.scanning import Asked
from reservoir.scan import image_rules
from reservoir.scan.policy import SignedImages, load
from tests.unit.reservoir.parts import image_blobs, image_parts, make_bundle, take
from tests.unit.reservoir.scan.advisories import URLLIB3, write

SPELLINGS = ("x", "library/x", f"{HUB}/x", f"{HUB}/library/x", f"index.{HUB}/x", f"index.{HUB}/library/x")

MAKER, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


def policy(*rules: dict[str, Any]) -> str:
    # YAML takes JSON as it is
    return json.dumps({"schema": 1, "signed_images": list(rules)})


ASKED = {"images": ["vendor/*"], "keys": {"vendor": cosign.write_key(MAKER.public_key())}}


def images(
    folder: Path, name: str = "vendor/tool", signed_by: ec.EllipticCurvePrivateKey | None = None
) -> list[tuple[Artifact, Path]]:
    """Return an image with its parts; the key that travels with a signature is the maker's, whoever signed."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for part, path in image_parts(folder, image_blobs(folder), name):
        described = part
        if isinstance(part, ImageArtifact) and signed_by:
            critical = {"image": {"docker-manifest-digest": part.metadata.digest}, "type": cosign.KIND}
            text = json.dumps({"critical": critical}).encode()
            one = cosign.kept(signed_by.sign(text, ec.ECDSA(SHA256())), text, MAKER.public_key())
            metadata = type(part.metadata)(**part.metadata.model_dump(), signatures=[one])
            described = part.model_copy(update={"metadata": metadata})
        found.append((described, path))
    return found


@pytest.fixture
def site(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """A site without images whose policy wants those of the vendor signed."""
    root = tmp_path / "site"
    take(make_bundle(tmp_path / "first", key, name="first", made=[]), root)
    scan(root, policy(ASKED))
    publish(root)
    return root


def scan(root: Path, rules: str) -> None:
    today = datetime.now(UTC).isoformat()
    advisories = write(root.parent / "advisories", *({**entry, "modified": today} for entry in URLLIB3))
    path = root.parent / "policy.yml"
    path.write_text(rules)
    scanning.site(root, Asked([advisories], path))


def bring(root: Path, key: Ed25519PrivateKey, made: Sequence[tuple[Artifact, Path]], name: str = "second") -> None:
    take(make_bundle(root.parent / name, key, name=name, made=made), root)


def test_an_image_that_the_right_key_signed_is_taken_and_published(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    bring(site, key, images(tmp_path / "images", signed_by=MAKER))
    scan(site, policy(ASKED))
    assert publish(site).changed


def test_import_refuses_an_image_by_name_that_nobody_or_somebody_else_signed(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    for signed_by, reason in ((None, "it came without a signature"), (OTHER, "none of the 1 signatures that came")):
        with pytest.raises(ForbiddenError, match=f"image vendor/tool:1: {reason}") as caught:
            bring(site, key, images(tmp_path / "images", signed_by=signed_by))
        (problem,) = caught.value.problems
        assert problem.reason.endswith("by vendor, as the policy of this site asks")
        assert "`signed_by`" in problem.hint
    assert [bundle.name for bundle in Store(site).imported().values()] == ["first"]


def test_images_of_other_names_and_those_let_through_before_need_no_signature(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    bring(site, key, images(tmp_path / "images", "team/tool"))
    scan(site, policy({"images": ["vendor/old", "vendor/tool"], "keys": {}}, ASKED))
    bring(site, key, images(tmp_path / "images"), "third")


def test_a_policy_that_grew_stricter_stops_what_was_taken_before(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    scan(site, policy())
    bring(site, key, images(tmp_path / "images"))
    scan(site, policy())
    assert publish(site).changed
    scan(site, policy(ASKED))
    bring(site, key, [], "third")
    scan(site, policy(ASKED))
    with pytest.raises(ForbiddenError, match="image vendor/tool:1: it came without a signature"):
        publish(site)


def test_a_key_that_is_none_is_an_error_of_the_policy() -> None:
    with pytest.raises(InputError, match="not a public key of cosign"):
        load(policy({"images": ["*"], "keys": {"vendor": "cosign.pub"}}), "policy.yml")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [(name, pattern) for name in SPELLINGS for pattern in (*SPELLINGS, "library/*", f"{HUB}/*", f"{HUB}/[w-y]*", "x*")]
    + [(f"{HUB}/vendor/tool", "v*/tool"), (f"index.{HUB}/vendor/tool", "v*"), ("localhost/x", "localhost/*")]
    + [("vendor/tool", f"{HUB}/vendor/*"), (f"{HUB}/vendor/tool", "vendor/*"), ("a.example/x", "a.example/*")],
)
def test_a_name_means_the_image_that_docker_takes_it_for(
    tmp_path: Path, key: Ed25519PrivateKey, name: str, pattern: str
) -> None:
    assert list(image_rules.judge(one_image(tmp_path, key, name), rules(pattern)))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("x", "*/*"),
        ("vendor/x", "x"),
        ("a.example/x", f"{HUB}/*"),
        ("a.example/x", "x"),
        ("vendor/x", "library/*"),
        ("localhost/x", f"{HUB}/*"),
        (f"{HUB}/localhost/x", "localhost/*"),
        (f"{HUB}/x", f"{HUB}/library/y"),
    ],
)
def test_a_name_means_no_other_image(tmp_path: Path, key: Ed25519PrivateKey, name: str, pattern: str) -> None:
    assert not list(image_rules.judge(one_image(tmp_path, key, name), rules(pattern)))


def one_image(folder: Path, key: Ed25519PrivateKey, name: str) -> Bundle:
    """The list of a bundle with an image that nobody signed."""
    made = make_bundle(folder / "one", key, made=images(folder / "parts", name))
    return bundles.decode((made / bundles.LIST).read_bytes(), "")


def rules(pattern: str) -> list[SignedImages]:
    """What a policy says that wants an image signed."""
    return load(policy({**ASKED, "images": [pattern]}), "policy.yml").signed_images
