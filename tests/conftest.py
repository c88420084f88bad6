"""What holds for all tests: limits of time, and one PostgreSQL server for all that need one."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import once

if TYPE_CHECKING:
    from tests.installed import InstalledDatabase

OWNER = "PENSTOCK_TESTS_PID"
"""Environment variable by which the processes of a run know the first of them."""
SERVER = "postgresql"
"""The folder of the server that they share, in that of the run."""

pytest.register_assert_rewrite("tests.fakes")  # or what fails there would not tell its values

GARBAGE = (20_000, 20, 20)
"""For how many new objects, and for how many looks, the next look for garbage waits: a run is shorter than what the
defaults of Python are meant for."""

LIMITS_S = {"integration": 1800, "lab": 3600, "slurm_lab": 3600}
"""How long a test of these tiers may take, with what it sets up for others, on a busy machine."""

# A time limit of an example would measure what else the machine does. What stands between a change and main tries the
# same examples each time: a change must not fail, nor pass, by luck. New ones are looked for by `search`, by hand.
settings.register_profile("full", deadline=None, max_examples=150, derandomize=True)
settings.register_profile("fast", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("full")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        (once.begin() / SERVER).mkdir()
        os.environ[OWNER] = str(os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let nobody look for garbage among what modules and tests are, while they come and afterwards, nor often."""
    gc.disable()
    gc.set_threshold(*GARBAGE)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    twice = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        # of tests with one name, xdist runs one and says nothing
        raise pytest.UsageError(f"several tests are called {', '.join(twice)}")
    for item in items:
        tier = item.path.relative_to(Path(__file__).parent).parts[0]
        if tier in LIMITS_S:
            item.add_marker(pytest.mark.timeout(LIMITS_S[tier]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        from tests import postgresql

        postgresql.stop(once.folder() / SERVER)
        once.end()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgresql_server() -> Path:
    """The folder of a running PostgreSQL, which `new_database` takes; it serves the other tests, too."""
    from tests import postgresql

    folder = once.folder() / SERVER
    postgresql.shared_server(folder, int(os.environ[OWNER]))
    return folder


@pytest.fixture
def empty_database_url(postgresql_server: Path) -> str:
    """A database without tables."""
    from tests import postgresql

    return postgresql.new_database(postgresql_server)


@pytest.fixture(scope="session")
def _installed_database(postgresql_server: Path) -> Iterator[InstalledDatabase]:
    from tests.installed import InstalledDatabase

    database = InstalledDatabase(postgresql_server)
    yield database
    database.close()


@pytest.fixture
def database_url(_installed_database: InstalledDatabase) -> str:
    """A database with the tables of this version and an administrator, and nothing that another test has written."""
    return _installed_database.fresh()
