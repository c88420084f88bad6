"""The plan of a deploy: what it tells of controller and nodes, and that it leaves the controller as it is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import departure, deployment, engine_change, pki, planning, playbook, product
from appliance.site.foreseen import Foreseen
from appliance.site.model import Site
from appliance.site.preflight import FINDINGS, PRESENT
from common.errors import ConflictError, ProcessError
from reservoir.contents.artifact import PythonArtifact
from reservoir.publication.publish import LAYOUT

QUIET = {
    **dict.fromkeys(("locked", "broken", "web_server"), ""),
    "docker_root": {"before": "/var/lib/docker", "containers": 0, "foreign": []},
    **{name: [] for name in ("listening", "clusters", "exports", "recorded")},
    "simulation": {"removed": [], "installed": ["docker.io 20 -> 26"], "held": [], "error": ""},
    "engines": {},
    "containers": {"conmon": 0, "containerd-shim": 0},
}


class World:
    """What a plan meets: playbooks and bundle are played, certificates and files of the controller are real."""

    def __init__(self, folder: Path) -> None:
        self.state, self.root = folder / "state", folder / "reservoir"
        self.foreseen: dict[str, list[Foreseen]] = {}
        self.failures: list[playbook.Event] = []
        self.silent: list[playbook.Event] = []
        self.asked: dict[str, Any] = {}
        self.certified = False
        self.found: Any = None
        self.keys: list[Any] = []

    def verify(self, _folder: Path, key: Any, _progress: Any) -> Any:
        self.keys.append(key)
        return self.found

    def serve(self, identity: str) -> None:
        publication = self.root / "publications" / "1"
        publication.mkdir(parents=True)
        record = {"bundles": [identity], "layout": LAYOUT, "number": 1}
        (publication / "publication.json").write_text(json.dumps(record))
        (self.root / "current").symlink_to(Path("publications/1"))

    def run(self, name: str, hosts: dict[str, Any], *, state: Path, **options: Any) -> playbook.Result:
        (state / "runs").mkdir(parents=True, exist_ok=True)
        result = playbook.Result(name, log=Path("log"))
        if name == "preflight":
            result.published = {node: {FINDINGS: [], PRESENT: QUIET} for node in options["limit"]}
            return self.failed(result, self.silent)
        self.asked = {"name": name, "state": Path(hosts["all"]["vars"]["site_state"]), **options}
        folder = self.asked["state"] / "pki" / "nodes"
        self.certified = {path.name for path in folder.iterdir()} >= set(options["limit"])
        result.foreseen = self.foreseen
        return self.failed(result, self.failures)

    @staticmethod
    def failed(result: playbook.Result, events: list[playbook.Event]) -> playbook.Result:
        for event in events:
            result.code = 2
            result.failures.append(event)
            result.nodes[event.node] = playbook.Counts(failed=1)
        return result


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    played = World(tmp_path)
    own = SimpleNamespace(name="penstock", version="1.2.3", sha256="0")
    targets = [SimpleNamespace(os="debian", name=name, release=name) for name in ("bookworm", "trixie")]
    bundle = SimpleNamespace(
        version="1.2.3", name="penstock", targets=targets, of_kind=lambda kind: [own] if kind is PythonArtifact else []
    )
    played.found = SimpleNamespace(bundle=bundle, identity="penstock-1.2.3-abc", blob=lambda _: None)
    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(product, "verify", played.verify)
    monkeypatch.setattr(product, "version", lambda _: "1.2.3", raising=False)
    monkeypatch.setattr(departure, "close", lambda *_, **__: [])
    monkeypatch.setattr(playbook, "run", played.run)
    return played


def plan(site: Site, world: World) -> planning.Plan:
    listener = deployment.DeployListener()
    return planning.plan(site, Path("bundle"), listener, state=world.state, root=world.root)


def known(site: Site, world: World) -> None:
    """Make the controller what a deploy of this site leaves."""
    world.state.mkdir()
    deployment.identify(site, world.state, deployment.Deployment(site.name, "", "", ""))
    world.serve("penstock-1.2.3-abc")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_where_all_is_as_it_should_be_nothing_would_change(site: Site, world: World) -> None:
    known(site, world)
    before = files(world.state)
    told = plan(site, world)
    assert (told.changes, told.controller, set(told.nodes)) == (0, [], {node.name for node in site.nodes})
    assert (world.asked["name"], world.asked["check"], world.asked["diff"]) == ("site", True, True)
    assert files(world.state) == before
    assert not world.asked["state"].exists()


def test_a_plan_asks_before_all_else_whether_sessions_run_where_the_engine_changes(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(site, world)

    def refuse(*_: object) -> None:
        raise ConflictError("sessions run")

    monkeypatch.setattr(engine_change, "require_idle", refuse)
    with pytest.raises(ConflictError, match="sessions run"):
        plan(site, world)


def test_a_plan_refuses_a_bundle_that_has_to_be_installed_here_first(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(site, world)
    monkeypatch.setattr(product, "version", lambda _: "1.2.2")
    with pytest.raises(ConflictError, match="`penstock site upgrade bundle`"):
        plan(site, world)


def test_a_node_that_joins_has_a_certificate_for_the_plan_alone(site: Site, world: World) -> None:
    known(site.model_copy(update={"nodes": site.nodes[:-1]}), world)
    new, before = site.nodes[-1].name, files(world.state)
    world.foreseen = {new: [Foreseen("Time", "Install chrony"), Foreseen("Time", "Restart chrony", handler=True)]}
    told = plan(site, world)
    assert told.controller == ["certificates issued"]
    assert {name: node.changes for name, node in told.nodes.items() if node.changes} == {new: 2}
    assert told.changes == 3
    assert world.certified
    assert files(world.state) == before


def test_another_bundle_is_told_with_the_packages_of_each_node(site: Site, world: World) -> None:
    world.state.mkdir()
    deployment.identify(site, world.state, deployment.Deployment(site.name, "", "", ""))
    world.serve("penstock-1.2.2-abc")
    told = plan(site, world)
    assert told.controller == ["bundle imported", "publication made"]
    assert {tuple(node.packages) for node in told.nodes.values()} == {("docker.io 20 -> 26",)}


def test_a_site_without_a_publication_is_installed_as_a_whole(site: Site, world: World) -> None:
    told = plan(site, world)
    assert all(node.whole for node in told.nodes.values())
    assert world.asked == {}
    assert not (world.state / "pki").exists()


def test_a_worker_that_cannot_say_is_left_out_and_a_node_that_all_need_stops_the_plan(site: Site, world: World) -> None:
    known(site, world)
    world.failures = [playbook.Event("Time", "worker1", "Ask", playbook.Outcome.FAILED, "no room")]
    told = plan(site, world)
    assert set(told.left_out) == {"worker1"}
    assert "worker1" not in told.nodes
    world.failures = [playbook.Event("Time", "master1", "Ask", playbook.Outcome.FAILED, "no room")]
    with pytest.raises(ProcessError, match="master1: Time: Ask: no room"):
        plan(site, world)


def test_a_certificate_that_ends_soon_is_told(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    known(site, world)
    monkeypatch.setattr(pki, "RENEW_DAYS", 826)
    assert plan(site, world).controller == ["certificates issued"]


def test_a_rehearsal_runs_the_preflight_alone_and_expects_the_key_that_the_site_knows(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "expected_key", lambda _: "the site's key")
    listener = deployment.DeployListener()
    assert planning.rehearse(site, Path("bundle"), listener, state=world.state, root=world.root) == {}
    assert world.keys == ["the site's key"]
    assert world.asked == {}
    assert [path.name for path in world.state.iterdir()] == ["runs"]


def test_a_rehearsal_names_a_worker_that_does_not_answer(site: Site, world: World) -> None:
    world.silent = [playbook.Event("Preflight", "worker2", "Look", playbook.Outcome.UNREACHABLE, "no route")]
    listener = deployment.DeployListener()
    left_out = planning.rehearse(site, Path("bundle"), listener, state=world.state, root=world.root)
    assert list(left_out) == ["worker2"]
