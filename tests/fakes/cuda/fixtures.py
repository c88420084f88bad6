"""Fixtures of tests with the shim: it and the fake machine, built once a run, and tenants of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.cuda.clients import Bench, Tenant, build_shim
from tests.once import once


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench(once("bench", Bench.build))


@pytest.fixture(scope="session")
def release() -> Path:
    """The shim as sites have it."""
    return once("release", lambda folder: build_shim(folder, "release")) / "libpenstock-gpu.so"


@pytest.fixture
def tenant(bench: Bench) -> Iterator[Callable[..., Tenant]]:
    """Make tenants of one machine: limits in bytes per GPU. Every user of the computer can reach their files."""
    made: list[Tenant] = []
    with TemporaryDirectory(prefix="penstock-shim-") as name:
        folder = Path(name)
        folder.chmod(0o755)

        def make(*limits: int, **settings: object) -> Tenant:
            found = Tenant(bench, folder / str(len(made)), limits, machine_folder=folder, **settings)  # type: ignore[arg-type]
            made.append(found)
            return found

        yield make
