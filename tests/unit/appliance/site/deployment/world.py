"""What a deploy meets: bundle, playbooks and nodes are played here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from appliance.site import departure, deploy_records, deployment, playbook, preflight
from appliance.site.model import Site
from common.errors import PenstockError, Problem
from reservoir.contents.artifact import PythonArtifact


class World:
    """What a deploy meets, and what it did in order."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.did: list[str] = []
        self.changed = True
        self.findings: list[dict[str, Any]] = []
        self.failure: PenstockError | None = None
        self.identity = "penstock-1.2.3-44136fa355b3"
        self.missing: list[int] = []
        self.left_out: list[Problem] = []
        self.artifacts = [SimpleNamespace(name="penstock", version="1.2.3", sha256="0")]
        self.schema = "0024"
        self.no_backup: PenstockError | None = None
        self.releases = ["bookworm", "trixie"]
        self.site_changes = 5
        self.down: list[str] = []
        self.broken: list[str] = []
        self.hosts: dict[str, Any] = {}
        self.unattended = False
        self.mended = False
        self.rolled_back = False
        self.without_lock: list[str] = []
        self.sessions: list[dict[str, str]] = []

    def bundle(self) -> Any:
        targets = [SimpleNamespace(os="debian", name=release, release=release) for release in self.releases]
        return SimpleNamespace(version="1.2.3", name="penstock", of_kind=self.of_kind, targets=targets)

    @staticmethod
    def another() -> Any:
        return SimpleNamespace(of_kind=lambda _: [])

    def of_kind(self, kind: type) -> list[Any]:
        return self.artifacts if kind is PythonArtifact else []

    def take(self, *_: Any, **__: Any) -> Any:
        self.did.append("import")
        if self.failure:
            raise self.failure
        lacking = {"complete": not self.missing, "media": 3, "missing": self.missing, "damaged": []}
        return SimpleNamespace(
            changed=self.changed,
            new=self.changed and not self.mended,
            identity=self.identity,
            trust=None,
            warning="",
            **lacking,
        )

    def publish(self, *_: Any, unattended: bool, **__: Any) -> Any:
        self.did.append("publish")
        self.unattended = unattended
        served = [self.identity, "penstock-1.2.3-abc"]
        return SimpleNamespace(
            changed=self.changed, left_out=self.left_out, bundles=served, number=3, rolled_back=self.rolled_back
        )

    def issue(self, *_: Any) -> bool:
        self.did.append("issue")
        return self.changed

    def back_up(self, *_: Any) -> Any:
        self.did.append("backup")
        if self.no_backup:
            raise self.no_backup
        return SimpleNamespace(name="penstock-20261123-073000")

    def run(
        self, name: str, hosts: dict[str, Any], *, limit: Sequence[str] = (), together: bool = True, **options: Any
    ) -> playbook.Result:
        self.did.append(f"{name} {' '.join(limit)}".strip())
        if not options.get("held"):
            self.without_lock.append(name)
        assert together == ("worker1" not in limit and "worker2" not in limit) or name == "preflight"
        self.hosts = hosts
        result = playbook.Result(name, log=Path("log"))
        if name == "departure":
            nodes = [{"name": "worker1", "closed": False, "sessions": self.sessions}]
            result.published = {"master1": {departure.NODES: nodes if self.sessions else []}}
            return result
        if name == "preflight":
            result.published = {node: {preflight.FINDINGS: []} for node in limit if node not in self.down}
            result.published["worker1"] = {preflight.FINDINGS: self.findings}
            self.fail(result, [node for node in limit if node in self.down], playbook.Outcome.UNREACHABLE)
            return result
        result.phases = {"Time": 1.5}
        result.nodes = {node: playbook.Counts(ok=9, changed=self.site_changes) for node in limit}
        result.changes = {node: [f"Task of {name}"] for node in limit if self.site_changes}
        self.fail(result, [node for node in limit if node in self.broken], playbook.Outcome.FAILED)
        return result

    @staticmethod
    def fail(result: playbook.Result, nodes: list[str], outcome: playbook.Outcome) -> None:
        for node in nodes:
            result.code = 2
            result.nodes[node] = playbook.Counts(ok=1, failed=1)
            result.failures.append(playbook.Event("Time", node, "Install", outcome, "no room"))


def run(
    site: Site,
    world: World,
    limit: list[str] | None = None,
    bundle: Path | None = Path("bundle"),
    renewal: Callable[[], None] | None = None,
    file: str = "name: lab\n",
) -> deployment.Deployment:
    return deployment.deploy(
        site,
        bundle,
        deployment.DeployListener(),
        file=file,
        limit=limit,
        renewal=renewal,
        state=world.state,
        root=Path("/reservoir"),
    )


def records(world: World) -> list[dict[str, Any]]:
    return deploy_records.read(world.state)
