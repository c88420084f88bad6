"""Targets that no repository can be made for."""

from __future__ import annotations

import pytest

from reservoir.artifacts import kinds
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord


def problems(**said: str) -> list[str]:
    target = TargetRecord.model_validate({"name": "new", "arch": "amd64"} | said)
    bundle = Bundle(name="a", version="1", created="2026-01-02T00:00:00Z", targets=[target], artifacts=[])
    return [str(problem) for problem in kinds.check([bundle], lambda _: None)]


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
@pytest.mark.parametrize(("os", "longest"), [("debian", 244), ("rpm", 239)])
def test_a_release_is_a_part_of_names(os: str, longest: int, arch: str) -> None:
    assert not problems(os=os, release="r" * longest, arch=arch)
    assert problems(os=os, release="r" * 300, arch=arch)[0].startswith(
        "target new: release: a publication has files of 255 bytes at most, and one of 31"
    )


def test_dnf_has_repositories_for_some_architectures() -> None:
    (told,) = problems(os="rpm", release="9", arch="riscv64")
    assert told.startswith("target new: arch: there are RPM repositories for amd64 and arm64, and none for riscv64.")
    assert not problems(os="debian", release="trixie", arch="riscv64")
