from __future__ import annotations

import json
from typing import Any

import pytest

from common.errors import IntegrityError
from reservoir.artifacts.image.contents import Contents
from reservoir.artifacts.image.system import Installed
from reservoir.artifacts.kinds import describe
from reservoir.artifacts.licence import Found
from reservoir.bundle import sbom
from reservoir.contents.artifact import Artifact
from reservoir.contents.lock import LockedImage
from reservoir.scan import facts
from tests.counting import calls
from tests.unit.reservoir.scan.advisories import TARGETS, bundle, deb, package

WHEEL = package("python", "urllib3", "1.24.3")
DEB = deb("libssl3", "3.0.11-1~deb12u2", "debian12", source="openssl")
RPM = package("rpm", "openssl-libs", "1:3.0.7-27.el9", "rocky9", arch="x86_64")
OCI = {"session": True, "media_type": "application/vnd.oci.image.manifest.v1+json", "architectures": ["amd64"]}
IMAGE = package("image", "penstock/python", "3.11", tag="3.11", digest="", **OCI)
PART = package("image-part", "layer", "0123456789ab", media_type="application/vnd.oci.image.layer.v1.tar+gzip")
FILE = package("file", "driver.run", "1")
ALL = (WHEEL, DEB, RPM, IMAGE, PART, FILE)
MADE = [LockedImage(name="penstock/python", tag="3.11", base=[DEB.sha256], packages=[], python=[WHEEL.sha256])]
LICENCES = {WHEEL.sha256: Found("MIT", "License"), DEB.sha256: Found("LicenseRef-Debian-x AND ISC", "copyright")}


def document(*artifacts: Artifact) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(sbom.make(bundle(*artifacts), MADE, LICENCES))
    return parsed


def invalid(text: str) -> object:
    """What is wrong with a bill of materials, or None."""
    # imports what takes seconds, which only the worker shall pay that runs these tests
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


def component(artifact: Artifact) -> dict[str, Any]:
    components = document(*ALL)["components"]
    found: dict[str, Any] = next(c for c in components if c["bom-ref"] == f"{artifact.kind}:{artifact.sha256}")
    return found


def test_it_is_valid_cyclonedx_1_6() -> None:
    text = sbom.make(bundle(*ALL), MADE, LICENCES).decode()
    assert invalid(text) is None
    assert json.loads(text)["specVersion"] == "1.6"


@pytest.mark.parametrize(
    ("artifact", "address"),
    [
        (WHEEL, "pkg:pypi/urllib3@1.24.3"),
        (DEB, "pkg:deb/debian/libssl3@3.0.11-1~deb12u2?arch=amd64&distro=bookworm"),
        (RPM, "pkg:rpm/rocky-linux/openssl-libs@3.0.7-27.el9?arch=x86_64&distro=rocky-linux-9&epoch=1"),
        (IMAGE, f"pkg:oci/python@sha256:{IMAGE.sha256}?repository_url=penstock/python&tag=3.11"),
        (FILE, f"pkg:generic/driver.run-1.bin@1?checksum=sha256:{FILE.sha256}"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.kind,
)
def test_every_kind_has_the_address_that_other_tools_know(artifact: Artifact, address: str) -> None:
    found = component(artifact)
    assert found["purl"].replace("%3A", ":").replace("%2F", "/") == address
    assert found["hashes"] == [{"alg": "SHA-256", "content": artifact.sha256}]
    assert {"name": "penstock:target", "value": artifact.targets[0]} in found["properties"]


def test_packages_of_ubuntu_are_ubuntus() -> None:
    described = describe(DEB, TARGETS[0].model_copy(update={"release": "noble"}))
    assert (described.purl.namespace, described.ecosystem) == ("ubuntu", "Ubuntu:24.04:LTS")


def test_every_artifact_is_in_it_and_images_say_what_is_inside() -> None:
    parsed = document(*ALL)
    assert len(parsed["components"]) == len(ALL)
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in parsed["dependencies"]}
    assert set(graph[f"image:{IMAGE.sha256}"]) == {f"debian:{DEB.sha256}", f"python:{WHEEL.sha256}"}
    assert len(graph["bundle:small"]) == len(ALL)


def test_the_same_contents_give_the_same_bytes_and_other_contents_another_number() -> None:
    assert sbom.make(bundle(*ALL), MADE, LICENCES) == sbom.make(bundle(*ALL), MADE, LICENCES)
    assert document(*ALL)["serialNumber"] != document(WHEEL, DEB)["serialNumber"]
    assert "timestamp" not in document(*ALL)["metadata"]


def test_the_checker_reads_licences_and_images_out_of_it() -> None:
    known = facts.read(sbom.make(bundle(*ALL), MADE, LICENCES), "sbom.cdx.json")
    assert known.licences[WHEEL.sha256] == ("MIT", "License")
    assert known.licences[DEB.sha256] == ("LicenseRef-Debian-x AND ISC", "copyright")
    assert known.licences[FILE.sha256] == (None, "")
    assert known.images == {DEB.sha256: ["penstock/python:3.11"], WHEEL.sha256: ["penstock/python:3.11"]}


def test_the_packages_of_an_image_from_elsewhere_stand_in_it() -> None:
    listed = Installed("libssl3", "Debian:12", "openssl", "3.0.11-1")
    other = package("image", "vendor/tool", "1", tag="1", digest="", **OCI)
    shut = package("image", "vendor/shut", "1", tag="1", digest="", **OCI)
    inside = {other.sha256: Contents((listed,)), shut.sha256: Contents(unread="nobody says")}
    text = sbom.make(bundle(*ALL, other, shut), MADE, LICENCES, inside)
    assert invalid(text.decode()) is None
    known = facts.read(text, "sbom.cdx.json")
    assert known.installed == {other.sha256: [listed], shut.sha256: []}
    assert known.unread == {shut.sha256: "nobody says"}
    assert sbom.serial(bundle(other), [], {}, inside) != sbom.serial(bundle(other), [], {})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"components": [{}], "dependencies": []}'])
def test_a_bill_of_another_make_is_refused(text: str) -> None:
    with pytest.raises(IntegrityError, match="not the SBOM of a bundle"):
        facts.read(text.encode(), "sbom.cdx.json")


def test_the_same_bytes_under_two_names_are_two_components() -> None:
    other = FILE.model_copy(update={"name": "driver-latest.run", "filename": "driver-latest.run-1.bin"})
    tagged = IMAGE.model_copy(update={"version": "latest"})
    made = [*MADE, MADE[0].model_copy(update={"tag": "latest"})]
    text = sbom.make(bundle(*ALL, other, tagged), made, LICENCES)
    assert invalid(text.decode()) is None
    found = [c for c in json.loads(text)["components"] if c["hashes"][0]["content"] in (FILE.sha256, IMAGE.sha256)]
    assert sorted((c["name"], c["version"]) for c in found) == [
        ("driver-latest.run", "1"),
        ("driver.run", "1"),
        ("penstock/python", "3.11"),
        ("penstock/python", "latest"),
    ]
    assert len({c["bom-ref"] for c in found}) == 4
    inside = facts.read(text, "sbom").images
    assert sorted(inside[WHEEL.sha256]) == ["penstock/python:3.11", "penstock/python:latest"]
    assert facts.read(text, "sbom").licences.keys() == {a.sha256 for a in ALL}


def test_twice_the_artifacts_are_at_most_twice_the_work() -> None:
    def work(count: int) -> int:
        whole = bundle(*(package("file", f"driver-{number}.run", "1") for number in range(count)))
        return calls(lambda: sbom.make(whole, [], {}))

    work(1)
    assert work(400) <= 2.3 * work(200)
