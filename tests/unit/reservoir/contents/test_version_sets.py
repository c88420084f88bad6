from __future__ import annotations

import pytest

from common.errors import ConflictError, InputError
from reservoir.contents import version_sets
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import SetVersions, TargetRecord
from reservoir.manifest.model import VersionSet

GPU = VersionSet(
    name="gpu",
    packages={"nvidia-driver": "580.*", "nvidia-fabricmanager": "580.*", "linux-headers-amd64": "*"},
    equal=["nvidia-driver", "nvidia-fabricmanager"],
)
GOOD = {"nvidia-driver": "580.65-1", "nvidia-fabricmanager": "1:580.65-3", "linux-headers-amd64": "6.12-1", "bash": "5"}


def resolve(version_set: VersionSet, **changes: set[str]) -> SetVersions | None:
    versions = {name: {version} for name, version in GOOD.items()}
    versions |= {name.replace("_", "-"): value for name, value in changes.items()}
    return version_sets.resolve(version_set, "debian12", versions, "m.yml: version_sets.gpu")


def test_a_consistent_version_set_says_which_versions_it_has() -> None:
    version_set = GPU.model_copy(update={"packages": GPU.packages | {"nvidia-fabricmanager": "1:580.*"}})
    assert resolve(version_set) == SetVersions(
        name="gpu", target="debian12", packages={name: GOOD[name] for name in GPU.packages}
    )


def test_a_version_set_of_which_nothing_goes_in_is_none() -> None:
    assert version_sets.resolve(GPU, "debian12", {"bash": {"5"}}, "m.yml") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"linux_headers_amd64": set()}, r"not whole: nvidia-driver, .* without linux-headers-amd64.*Hint: list"),
        ({"nvidia_driver": {"570.1-1"}}, r"wants nvidia-driver 580\.\*, and 570\.1-1 would go in.*Hint: correct"),
        ({"nvidia_driver": {"580.1-1", "580.2-1"}}, r"nvidia-driver in several versions: 580\.1-1, 580\.2-1"),
        (
            {"nvidia_driver": {"580.1-1"}, "nvidia_fabricmanager": {"580.2-1"}},
            r"must be equal: nvidia-driver 580\.1-1, nvidia-fabricmanager 580\.2-1.*Hint: give",
        ),
    ],
)
def test_a_version_set_that_is_not_consistent_is_refused(changes: dict[str, set[str]], words: str) -> None:
    with pytest.raises(InputError, match=rf"m\.yml: version_sets\.gpu: the version set gpu .*{words}"):
        resolve(GPU, **changes)


def test_the_reason_of_a_version_set_stands_in_its_errors() -> None:
    told = GPU.model_copy(update={"reason": "the fabric manager must be of the driver's version"})
    words = r"the version set gpu \(the fabric manager must be of the driver's version\) wants"
    with pytest.raises(InputError, match=words):
        resolve(told, nvidia_driver={"570.1-1"})


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("1:580.65.06-1~deb12u1", "580.65.06"), ("580.65", "580.65"), ("2.0-rc1-3", "2.0-rc1"), ("0:1.2-3.el9", "1.2")],
)
def test_the_upstream_part_of_a_version(version: str, upstream: str) -> None:
    assert version_sets.upstream(version) == upstream


def bundle(name: str, version: str, arch: str = "amd64") -> Bundle:
    return Bundle(
        name=name,
        version="1",
        created="2026-01-01T00:00:00Z",
        targets=[TargetRecord(name="node", os="debian", release="bookworm", arch=arch)],
        artifacts=[],
        version_sets=[SetVersions(name="gpu", target="node", packages={"driver": version, "headers": "6.1"})],
    )


def test_bundles_whose_version_sets_agree_go_together() -> None:
    assert version_sets.together([bundle("a", "1"), bundle("b", "1")], "bookworm", "amd64") == {
        "driver": "1",
        "headers": "6.1",
    }
    assert version_sets.together([bundle("a", "1"), bundle("b", "2", "arm64")], "bookworm", "amd64")["driver"] == "1"
    assert version_sets.together([bundle("a", "1")], "trixie", "amd64") == {}


def test_bundles_whose_version_sets_contradict_do_not_go_together() -> None:
    words = r"bookworm amd64: the version set gpu of a 1 holds driver at 1, and gpu of b 1 holds it at 2.*Hint: build"
    with pytest.raises(ConflictError, match=words):
        version_sets.together([bundle("a", "1"), bundle("b", "2")], "bookworm", "amd64")


def test_a_bundle_that_brings_another_line_of_a_bound_package_says_so() -> None:
    held = [bundle("drivers", "535.309.01-1"), bundle("other", "9", "arm64")]
    said = version_sets.leaps(held, bundle("more-drivers", "550.163.01-2"))
    assert said == ["it brings driver 550.163.01 for bookworm amd64, where this site holds 535.309.01"]
    assert version_sets.leaps(held, bundle("drivers", "535.400-1")) == []
    assert version_sets.leaps([], bundle("drivers", "550.163.01-2")) == []
