"""Units of systemd on a worker: what one line of them is for, and no test on a node would show soon enough."""

from __future__ import annotations

from configparser import RawConfigParser
from pathlib import Path

import pytest

ROLES = Path(__file__).parents[2] / "roles"
AGENT = "node_agent/templates/etc/systemd/system/penstock-agent.service.j2"
DOCKER = "container_engine/files/etc/systemd/system/docker.service.d/oom.conf"
APART = ("PrivateMounts", "PrivateTmp", "ProtectSystem", "ProtectHome", "ReadOnlyPaths", "BindPaths", "MountFlags")


def service(path: str) -> dict[str, str]:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROLES / path)
    return dict(unit["Service"])


@pytest.mark.parametrize("path", [AGENT, DOCKER])
def test_where_memory_runs_out_sessions_end_first(path: str) -> None:
    assert int(service(path)["OOMScoreAdjust"]) < 0


def test_docker_sees_what_the_agent_mounts() -> None:
    assert not set(APART) & set(service(AGENT))
