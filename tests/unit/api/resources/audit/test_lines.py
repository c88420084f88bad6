"""Lines of the audit log: never too long, never too many at once, and with the nodes that they touch."""

from __future__ import annotations

import json
from typing import Any

from api.resources.audit import lines
from api.resources.audit.repository import Pending

ENTRY: dict[str, Any] = {"object": "sandboxes/strict", "method": "PATCH", "project": None, "domain": None}


def change(size: int, kind: str = "sandboxes", **subject: str) -> dict[str, Any]:
    return {"kind": kind, "subject": {"name": "strict", **subject}, "before": None, "after": {"rules": ["x" * size]}}


def whole(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return lines.whole(Pending(1, 1, "id", ENTRY | more, list(changes)))


def test_a_long_value_is_cut_and_what_fits_in_no_line_is_said_to_be_more() -> None:
    line = whole(*[change(1_000_000)] * 100)
    assert len(json.dumps(line)) < 2 * lines.MAX_LINE
    assert line["more_changes"]
    assert line["changes"][0]["after"]["rules"].endswith("x…")
    short = change(100)
    assert whole(short)["changes"] == [short]
    assert "more_changes" not in whole(short)


def test_lines_are_written_together_up_to_a_size() -> None:
    entries = [(f"{number}", whole(*[change(3000)] * 20)) for number in range(100)]
    first = lines.first_of(entries)
    assert len(entries) > len(first) > 1
    assert sum(len(json.dumps(entry)) for _, entry in first) <= lines.AT_ONCE
    assert len(lines.first_of(entries[:3])) == 3
    assert len(lines.first_of([("1", {"changes": "x" * 2 * lines.AT_ONCE}), entries[0]])) == 1


def test_nodes_are_those_that_are_named_and_those_where_a_session_runs() -> None:
    assert whole(change(1, "sessions", nodes="worker2 worker1"))["nodes"] == ["worker1", "worker2"]
    assert whole(change(1, "resource_group_nodes", node="worker3"), nodes=["worker1"])["nodes"] == [
        "worker1",
        "worker3",
    ]
    assert whole(object="nodes/worker1/mode")["nodes"] == ["worker1"]
    assert whole(object="nodes")["nodes"] == []
    repair = {"kind": "repair_runs", "subject": {}, "before": None, "after": {"node": "worker4"}}
    assert whole(repair)["nodes"] == ["worker4"]
