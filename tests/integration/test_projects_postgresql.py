"""Projects, resource groups and images on PostgreSQL, where several transactions write at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api_postgresql import new_database, running_server
from tests.unit.api.conftest import _cheap_hashes, anyio_backend, cluster  # noqa: F401
from tests.unit.api.test_groups import *  # noqa: F403
from tests.unit.api.test_images import *  # noqa: F403
from tests.unit.api.test_images_check import *  # noqa: F403
from tests.unit.api.test_projects_domains import *  # noqa: F403
from tests.unit.api.test_projects_people import *  # noqa: F403
from tests.unit.api.test_projects_periods import *  # noqa: F403
from tests.unit.api.test_projects_races import *  # noqa: F403


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    with running_server() as folder:
        yield folder


@pytest.fixture
def database_url(server: Path) -> str:
    return new_database(server)
