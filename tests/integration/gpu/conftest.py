"""The shim and the fake machine, built once for all tests of the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.cuda.clients import Bench, Tenant


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("shim")
    for parent in (folder, folder.parent):
        parent.chmod(0o755)
    return Bench.build(folder)


@pytest.fixture
def tenant(bench: Bench, tmp_path: Path) -> Callable[..., Tenant]:
    """Make tenants of one machine: limits in bytes per GPU."""
    made: list[Tenant] = []
    for folder in (tmp_path, tmp_path.parent):
        folder.chmod(0o755)

    def make(*limits: int, **settings: object) -> Tenant:
        folder = tmp_path / f"tenant-{len(made)}"
        found = Tenant(bench, folder, limits, machine_folder=tmp_path, **settings)  # type: ignore[arg-type]
        made.append(found)
        return found

    return make
