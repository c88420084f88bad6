"""`penstock site uninstall`: who is asked, and what is said of what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from appliance.cli.site import app as site_app
from appliance.site import uninstall as end
from tests.unit.appliance.cli.runs import EXAMPLE, run


class Ended:
    """A site as it ends: what the command asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def foreseen(self, *_: Any, **options: Any) -> end.Told:
        self.asked.append(("look", options))
        return {"master": ["stop penstock-api.service"], "worker1": []}

    def uninstall(self, *_: Any, **options: Any) -> end.Told:
        self.asked.append(("end", options))
        return {"master": ["stop penstock-api.service"], "worker1": []}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    ended = Ended()
    monkeypatch.setattr(end, "foreseen", ended.foreseen)
    monkeypatch.setattr(end, "uninstall", ended.uninstall)
    return ended


def test_a_site_ends_only_when_somebody_has_seen_what_goes(ended: Ended) -> None:
    result = CliRunner().invoke(site_app, ["uninstall", "-f", str(EXAMPLE), "--purge"], input="n\n")
    assert result.exit_code == 1
    assert "master:\n  stop penstock-api.service\nworker1: nothing\n" in result.output
    assert "ITS DATA" in result.output
    assert ended.asked == [("look", {"purge": True, "left": []})]


def test_a_plan_of_the_end_changes_nothing(ended: Ended) -> None:
    result = run(site_app, "uninstall", "-f", EXAMPLE, "--plan", "-o", "json", "--leave", "worker1,worker2")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["worker1"] == []
    assert ended.asked == [("look", {"purge": False, "left": ["worker1", "worker2"]})]


def test_the_end_says_what_is_kept(ended: Ended) -> None:
    result = run(site_app, "uninstall", "-f", EXAMPLE, "--yes")
    assert "Penstock is removed from 2 nodes" in result.stdout
    assert "kept: /var/lib/penstock" in result.stdout
    assert [what for what, _ in ended.asked] == ["look", "end"]
