"""The end of a lab."""

from __future__ import annotations

import uuid

from tests.lab.conftest import Sites
from tests.lab.site import docker


def test_down_removes_all_of_one_lab_and_nothing_else(removed: Sites) -> None:
    users, other = removed["users"], removed["other"]
    bystander, kept = f"penstock-{uuid.uuid4().hex[:6]}-bystander", users.objects()
    docker("volume", "create", bystander)
    try:
        assert all(other.objects().values())
        other.down()
        assert other.objects() == {"containers": [], "networks": [], "volumes": []}
        assert users.objects() == kept
        assert bystander in docker("volume", "ls", "--quiet").split()
        assert set(other.node_states().values()) == {"absent"}
        users.down()
        assert users.objects() == {"containers": [], "networks": [], "volumes": []}
        assert bystander in docker("volume", "ls", "--quiet").split()
    finally:
        docker("volume", "rm", bystander)
