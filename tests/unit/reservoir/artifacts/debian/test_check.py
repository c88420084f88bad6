"""What apt holds to be one package, however its version is written."""

from __future__ import annotations

from itertools import combinations

import pytest

from reservoir.artifacts.debian import check
from reservoir.contents.artifact import DebianArtifact
from reservoir.scan.versions import debian
from tests.unit.reservoir.scan.advisories import bundle, deb

ONE = [["1.0", "1.00", "0:1.0", "1.0-0", "1.", "1.0-00", "00:1.0"], ["1.0-1", "1.0-01", "0:1.0-1"], ["1a", "1a0"],
       ["1:1.0"], ["1.0~"], ["1.0~0-1"], ["1.0+0"], ["1"], ["10"], ["1-1-0"], ["1-1"],
       ["1-.1"], ["1-0.1"]]  # fmt: skip
VERSIONS = [version for versions in ONE for version in versions]


def problems(*versions: str) -> list[str]:
    """Say what is told of files of one package with these versions."""
    debs = bundle(*(deb("hello", version) for version in versions)).of_kind(DebianArtifact)
    return [problem.reason for problem in check.pool("bookworm", {"amd64": list(debs)})[1]]


@pytest.mark.parametrize(("one", "other"), list(combinations(VERSIONS, 2)))
def test_versions_that_dpkg_holds_equal_are_one_package(one: str, other: str) -> None:
    told = [f"two different files call themselves hello {other}"] if debian(one, other) == 0 else []
    assert problems(one, other) == told


def test_every_spelling_of_a_version_is_told() -> None:
    assert [len(problems(*versions)) for versions in ONE] == [len(versions) - 1 for versions in ONE]
    assert not problems(*(versions[0] for versions in ONE))
