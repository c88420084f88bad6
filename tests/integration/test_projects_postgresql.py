"""Projects, resource groups and images on PostgreSQL, where several transactions write at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.api_postgresql import new_database
from tests.unit.api.conftest import _cheap_hashes, anyio_backend, cluster  # noqa: F401
from tests.unit.api.test_groups import *  # noqa: F403
from tests.unit.api.test_images import *  # noqa: F403
from tests.unit.api.test_images_check import *  # noqa: F403
from tests.unit.api.test_projects_domains import *  # noqa: F403
from tests.unit.api.test_projects_people import *  # noqa: F403
from tests.unit.api.test_projects_periods import *  # noqa: F403
from tests.unit.api.test_projects_races import *  # noqa: F403


@pytest.fixture
def database_url(postgresql_server: Path) -> str:
    return new_database(postgresql_server)
