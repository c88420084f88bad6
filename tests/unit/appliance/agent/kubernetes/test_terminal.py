"""How a cluster tells that a command has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.agent.kubernetes.terminal import outcome


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"status": "Success"}, (0, "")),
        (
            {
                "status": "Failure",
                "message": "exit status 7",
                "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
            },
            (7, "exit status 7"),
        ),
        ({"status": "Failure", "message": "no such container"}, (None, "no such container")),
        ({"status": "Failure", "message": "lost", "details": None}, (None, "lost")),
    ],
)
def test_a_status_is_an_exit_code_or_a_reason(status: dict[str, Any], expected: tuple[int | None, str]) -> None:
    assert outcome(json.dumps(status).encode()) == expected
