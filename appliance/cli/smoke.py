"""The smoke test of a site: one real session with a volume on each worker, as a user submits it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from appliance.client import Client
from appliance.client.views import Node, Session
from appliance.site.model import NodeRole, Site
from common.checks import Check, CheckState
from common.errors import PenstockError
from common.gpu.units import format_gpus

NAME = "a session runs on this worker"
ENDED = ("TERMINATED", "FAILED")
STEP_S = 0.5
CLEAN_S = 60.0
FOLDER = "/smoke"


@dataclass
class Smoke:
    """One trial of all workers of a site, in a project of its own that is gone afterwards.

    It takes nothing from anybody: it asks for GPUs only where one has room and nobody waits for any.
    """

    client: Client
    wait_s: float
    name: str = field(default_factory=lambda: f"smoke-{uuid.uuid4().hex[:8]}")

    def __call__(self, site: Site) -> Iterator[tuple[str, Check]]:
        """Yield a check for each worker, and one for what could not be cleaned up."""
        workers = [node.name for node in site.with_role(NodeRole.WORKER)]
        judged: dict[str, Check] = {}
        try:
            judged.update(self._try(workers, has_volume=site.session_pvc_root is not None))
        except PenstockError as error:
            said = f"it could not be tried: {error}"
            judged = {name: Check("smoke", NAME, CheckState.UNKNOWN, said) for name in workers} | judged
        finally:
            left = list(self._clean())
        yield from judged.items()
        if left:
            said, hint = "; ".join(left), f"delete project {self.name} and the groups {self.name}-*"
            yield (
                site.master.name,
                Check.of("smoke.clean", "the smoke test left nothing", ok=False, evidence=said, hint=hint),
            )

    def _try(self, workers: Sequence[str], *, has_volume: bool) -> Iterator[tuple[str, Check]]:
        nodes = {node["name"]: node for node in self.client.nodes.list()}
        skipped = {name: check for name in workers if (check := _skipped(nodes.get(name)))}
        yield from skipped.items()
        yield from self._run({name: nodes[name] for name in workers if name not in skipped}, has_volume=has_volume)

    def _run(self, nodes: Mapping[str, Node], *, has_volume: bool) -> Iterator[tuple[str, Check]]:
        begin = time.monotonic()
        images = [image for image in self.client.images.list() if image["status"] != "failed"]
        if not nodes or not images:
            for name in nodes:
                yield name, Check("smoke", NAME, CheckState.UNKNOWN, "the site has no image that a session could run")
            return
        image = min(images, key=lambda each: (each["status"] != "ready", each["size"] or 1 << 62))
        self._prepare(nodes, has_volume=has_volume)
        sizes = self._gpus(nodes)
        for index, name in enumerate(nodes):
            self._submit(index, f"{image['name']}:{image['tag']}", sizes[name], has_volume=has_volume)
        waiting = dict(enumerate(nodes))
        while waiting:
            for index, name in list(waiting.items()):
                session = self.client.sessions.get(f"worker-{index}", project=self.name)
                seconds = time.monotonic() - begin
                if session["state"] in ENDED or seconds > self.wait_s:
                    del waiting[index]
                    yield name, self._judge(session, sizes[name], seconds, has_volume=has_volume)
            time.sleep(STEP_S if waiting else 0)

    def _prepare(self, nodes: Mapping[str, Node], *, has_volume: bool) -> None:
        """Make a project without a quota and, to pin a session to each node, groups of one node.

        Who may use a node now may use it all the while: a group is open where its node was for everybody.
        """
        self.client.projects.create(
            name=self.name,
            description="penstock site verify --smoke",
            quota_milli=0,
            over_quota=True,
            over_quota_weight=1,
            period={"ends_at": None},
        )
        for index, node in enumerate(nodes.values()):
            self.client.groups.create(
                name=f"{self.name}-{index}", nodes=[node["name"]], open=not node["groups"], projects=[self.name]
            )
        if has_volume:
            self.client.volumes.create(name="smoke", project=self.name)

    def _gpus(self, nodes: Mapping[str, Node]) -> dict[str, int]:
        """Return how much of a GPU each session asks for: nothing where that would be in anybody's way."""
        if self.client.sessions.list(state=["PENDING"]):
            return dict.fromkeys(nodes, 0)
        step = self.client.system.settings()["step_milli"]
        return {name: _fitting(node, step) for name, node in nodes.items()}

    def _submit(self, index: int, image: str, gpu_milli: int, *, has_volume: bool) -> None:
        path = f"{FOLDER}/{index}"
        write = f"echo {self.name} > {path} && cat {path}" if has_volume else f"echo {self.name}"
        self.client.sessions.submit(
            name=f"worker-{index}",
            project=self.name,
            image=image,
            group=f"{self.name}-{index}",
            gpu_milli=gpu_milli,
            cpu_milli=100,
            memory_mib=256,
            preemptible=True,
            command=["sh", "-c", write],
            pvcs=[{"name": "smoke", "target": FOLDER}] if has_volume else [],
        )

    def _judge(self, session: Session, gpu_milli: int, seconds: float, *, has_volume: bool) -> Check:
        log = self._log(session) if session["state"] in ENDED else ""
        gpus = f"{format_gpus(gpu_milli)} GPU" if gpu_milli else "no GPU, because none was free"
        what = f"{gpus}, {'a volume' if has_volume else 'no volume, because the site has no storage for them'}"
        if session["state"] == "TERMINATED" and self.name in log:
            return Check("smoke", NAME, CheckState.OK, f"it ran within {seconds:.1f} s with {what}")
        said = f"{session['state']} after {seconds:.0f} s with {what}"
        said += "".join(f": {text}" for text in (session["reason"], log) if text)
        node = session["containers"][0]["node"] if session["containers"] else "the worker"
        hint = f"look at `penstock node get` of the worker and at `journalctl -u penstock-agent` on {node}"
        return Check("smoke", NAME, CheckState.FAIL, said, hint)

    def _log(self, session: Session) -> str:
        try:
            return (
                b"".join(self.client.sessions.log(session["id"], project=self.name, tail=5))
                .decode(errors="replace")
                .strip()
            )
        except PenstockError as error:
            return f"its log cannot be read: {error}"

    def _clean(self) -> Iterator[str]:
        """Remove all that the trial has made, and yield what stays."""
        client, name = self.client, self.name
        end = time.monotonic() + CLEAN_S
        try:
            projects = [project["name"] for project in client.projects.list()]
            groups = [group["name"] for group in client.groups.list() if group["name"].startswith(f"{name}-")]
            while name in projects and (live := self._live()):
                for session in live:
                    client.sessions.delete(session, project=name)
                if time.monotonic() > end:
                    yield f"{len(live)} sessions of project {name} do not end"
                    break
                time.sleep(STEP_S)
        except PenstockError as error:
            yield str(error)
            return
        if name in projects:
            yield from _tried(partial(client.projects.delete, name, volumes="delete"))
        for group in groups:
            yield from _tried(partial(client.groups.delete, group))

    def _live(self) -> list[str]:
        sessions = self.client.sessions.list(self.name)
        return [session["id"] for session in sessions if session["state"] not in ENDED]


def _skipped(node: Node | None) -> Check | None:
    """Return why no session is tried on a node; None where one is."""
    if node is None:
        return Check("smoke", NAME, CheckState.UNKNOWN, "skipped: the control API does not list this node")
    if node["state"] != "ready":
        return Check("smoke", NAME, CheckState.UNKNOWN, f"skipped: the node is {node['state']}")
    if node["mode"] != "active":
        hint = f"`penstock node activate {node['name']}` lets it take sessions again"
        return Check("smoke", NAME, CheckState.WARN, f"skipped: the node is in mode {node['mode']}", hint)
    return None


def _fitting(node: Node, step_milli: int) -> int:
    """Return the smallest share that some GPU of a node has room for, a whole one where it divides none; 0 for none."""
    wanted = step_milli if node["fractions"] else 1000
    return wanted if any(gpu["capacity_milli"] - gpu["used_milli"] >= wanted for gpu in node["gpus"]) else 0


def _tried(do: Callable[[], object]) -> Iterator[str]:
    try:
        do()
    except PenstockError as error:
        yield str(error)
