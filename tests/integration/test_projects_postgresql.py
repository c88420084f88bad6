"""Projects, resource groups and images on PostgreSQL, where several transactions write at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgresql import new_database
from tests.api.cluster import _cheap_hashes, anyio_backend, cluster  # noqa: F401
from tests.api.resources.groups.test_groups import *  # noqa: F403
from tests.api.resources.images.test_images import *  # noqa: F403
from tests.api.control.test_image_check import *  # noqa: F403
from tests.api.resources.projects.test_domains import *  # noqa: F403
from tests.api.resources.projects.test_people import *  # noqa: F403
from tests.api.resources.projects.test_periods import *  # noqa: F403
from tests.api.resources.projects.test_races import *  # noqa: F403


@pytest.fixture
def database_url(postgresql_server: Path) -> str:
    return new_database(postgresql_server)
