"""The smoke test of a site, with a control API that is played here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.cli import smoke
from appliance.cli.smoke import Smoke
from appliance.client import Client
from appliance.site.site_file import load
from common.checks import Check
from common.errors import ForbiddenError, UnavailableError
from common.yaml_document import parse

SITE = load(parse((Path(__file__).parents[4] / "inventory/example/site.yml").read_text(), "site.yml"))


def node(name: str, **special: Any) -> dict[str, Any]:
    gpu = {"capacity_milli": 1000, "used_milli": 0}
    return {"name": name, "state": "ready", "mode": "active", "groups": [], "fractions": True, "gpus": [gpu], **special}


class Played:
    """A control API with what it has; its sessions end at once as they are told to."""

    def __init__(self) -> None:
        self.workers = [node("worker1"), node("worker2")]
        self.ends = {"worker1": "TERMINATED", "worker2": "TERMINATED"}
        self.waiting: list[dict[str, Any]] = []
        self.made: dict[str, dict[str, Any]] = {}
        self.log = "{name}"
        self.refused: Exception | None = None
        self.stuck = False
        of = SimpleNamespace
        self.nodes = of(list=lambda: self.workers)
        self.images = of(list=lambda: [{"name": "python", "tag": "3.11", "status": "ready", "size": 5}])
        self.system = of(settings=lambda: {"step_milli": 50})
        self.projects = of(list=lambda: self._made("project"), create=self._keep("project"), delete=self._delete)
        self.groups = of(list=lambda: self._made("group"), create=self._keep("group"), delete=self._delete)
        self.volumes = of(create=lambda **_: None)
        self.sessions = of(list=self._sessions, submit=self._submit, get=self._session, delete=self._end, log=self._log)

    def _made(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.made.values() if each["kind"] == kind]

    def _keep(self, kind: str) -> Any:
        def keep(**request: Any) -> None:
            if self.refused:
                raise self.refused
            self.made[request["name"]] = request | {"kind": kind}

        return keep

    def _delete(self, name: str, **_: Any) -> None:
        if self.stuck:
            raise UnavailableError("it cannot be deleted")
        del self.made[name]

    def _submit(self, **request: Any) -> None:
        worker = self.made[request["group"]]["nodes"][0]
        self.made[request["name"]] = request | {"kind": "session", "node": worker, "state": self.ends[worker]}

    def _session(self, name: str, *, project: str) -> dict[str, Any]:
        session = self.made[name]
        containers = [{"node": session["node"]}]
        return {"id": name, "state": session["state"], "reason": "it says why", "containers": containers}

    def _sessions(self, project: str | None = None, *, state: list[str] | None = None) -> list[dict[str, Any]]:
        return self.waiting if state else [{"id": each["name"], **each} for each in self._made("session")]

    def _end(self, name: str, *, project: str) -> None:
        del self.made[name]

    def _log(self, name: str, *, project: str, tail: int) -> Iterator[bytes]:
        return iter([self.log.format(name=project).encode()])


@pytest.fixture
def api() -> Played:
    return Played()


def run(api: Played, wait_s: float = 5) -> dict[str, Check]:
    return dict(Smoke(cast("Client", api), wait_s)(SITE))


def left(api: Played) -> list[str]:
    return [each["kind"] for each in api.made.values() if each.get("state") not in smoke.ENDED]


def test_a_session_with_a_volume_runs_on_each_worker_and_nothing_is_left(api: Played) -> None:
    found = run(api)
    assert {name: check.state for name, check in found.items()} == {"worker1": "ok", "worker2": "ok"}
    assert "0.05 GPU, a volume" in found["worker1"].evidence
    assert left(api) == []


def test_it_takes_no_gpu_from_anybody(api: Played) -> None:
    api.workers[0]["gpus"][0]["used_milli"] = 1000
    found = run(api)
    assert "no GPU, because none was free" in found["worker1"].evidence
    assert "0.05 GPU" in found["worker2"].evidence
    api.waiting = [{"name": "somebody's"}]
    assert "no GPU" in run(api)["worker2"].evidence


def test_who_may_use_a_node_stays_as_it_is(api: Played) -> None:
    api.workers[1]["groups"] = ["v100"]
    opened: dict[str, bool] = {}
    create = api.groups.create

    def note(**request: Any) -> None:
        opened[request["nodes"][0]] = request["open"]
        create(**request)

    api.groups.create = note
    run(api)
    assert opened == {"worker1": True, "worker2": False}


def test_a_session_that_fails_says_why(api: Played) -> None:
    api.ends["worker2"], api.log = "FAILED", "no room"
    check = run(api)["worker2"]
    assert check.state == "fail"
    assert check.evidence.endswith(": it says why: no room")
    assert "worker2" in check.hint
    assert left(api) == []


def test_a_session_that_wrote_nothing_failed(api: Played) -> None:
    api.log = ""
    assert run(api)["worker1"].state == "fail"


def test_it_waits_no_longer_than_it_may(api: Played) -> None:
    api.ends["worker1"] = "PENDING"
    found = run(api, wait_s=0)
    assert found["worker1"].evidence.startswith("PENDING after 0 s")
    assert left(api) == []


@pytest.mark.parametrize(
    ("special", "state", "said"),
    [
        ({"mode": "maintenance"}, "warn", "skipped: the node is in mode maintenance"),
        ({"state": "lost"}, "unknown", "skipped: the node is lost"),
        ({"name": "other"}, "unknown", "skipped: the control API does not list this node"),
    ],
)
def test_a_node_that_takes_nothing_is_left_out(api: Played, special: dict[str, Any], state: str, said: str) -> None:
    api.workers[1] |= special
    found = run(api)
    assert (found["worker2"].state, found["worker2"].evidence) == (state, said)
    assert found["worker1"].state == "ok"


def test_who_may_not_make_projects_learns_nothing(api: Played) -> None:
    api.refused = ForbiddenError("only administrators make projects")
    found = run(api)
    assert {check.state for check in found.values()} == {"unknown"}
    assert "only administrators make projects" in found["worker1"].evidence


def test_what_cannot_be_removed_is_told(api: Played) -> None:
    api.stuck = True
    check = run(api)["master1"]
    assert (check.id, check.state) == ("smoke.clean", "fail")
    assert "it cannot be deleted" in check.evidence
    assert "smoke-" in check.hint
