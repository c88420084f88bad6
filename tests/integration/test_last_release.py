"""This release beside the last one: API and agent of both, in both orders, while sessions run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from common import protocol
from common.messages import Message, Report, Since
from tests import forks, last_release
from tests.forks import Fork
from tests.integration.agent.conftest import Authority, authority, image  # noqa: F401
from tests.integration.own_engine import remove_containers
from tests.integration.test_api_agent import PASSWORD, Site
from tests.postgresql import new_database

Start = Callable[..., Fork | subprocess.Popen[bytes]]


class MixedSite(Site):
    """A site whose API and whose agent are each of this release or of the last one."""

    def __init__(self, pki: Authority, database_url: str, folder: Path) -> None:
        super().__init__(pki, database_url, folder)
        # a restart of the agent is no loss of the node, however busy this machine is
        self.environment["PENSTOCK_API_NODE_LOST_S"] = "60"
        self.containers: dict[str, str] = {}

    def serve(self, start: Start) -> None:
        """Let an API of a release take the database over and serve."""
        for words, stdin in ((["migrate"], ""), (["create-admin", "--name", "admin"], PASSWORD)):
            with (self.log.parent / "stdin").open("w+") as given, self.log.open("ab") as log:
                given.write(stdin)
                given.seek(0)
                program = start([sys.executable, "-m", "api", *words], self.environment, given, log, log)
                assert program.wait(60) == 0, self.log.read_text()
        with self.log.open("ab") as log:
            words = [sys.executable, "-m", "api", "serve"]
            self.process = start(words, env=self.environment, stdout=log, stderr=log)  # type: ignore[assignment]
        self.until(self._answers, 60)

    def take_part(self, start: Start) -> None:
        """Let the agent be one of a release."""
        before = self.node()["started_at"] if self.agent.process else ""
        self.agent.stop()
        self.agent.start(start)
        self.until(lambda: self.node()["started_at"] != before)

    def node(self) -> dict[str, Any]:
        return next(iter(self.get("/nodes")), {"started_at": ""})

    def run_session(self, name: str, **more: Any) -> None:
        """Submit a session that stays, and wait until it runs."""
        script = "trap 'exit 0' TERM; while true; do sleep 0.2; done"
        body = {"name": name, "project": "team-a", "image": "busybox", "command": ["sh", "-c", script]}
        self.call("POST", "/sessions", body | {"gpu_milli": 250, **more})
        self.containers[name] = self.until_state(name, "RUNNING")["started_at"]

    def check_goes_on(self) -> None:
        """See that nothing has happened to any session, and that work of all kinds still begins and ends."""
        for name, started_at in self.containers.items():
            session = self.get(f"/sessions/{name}", project="team-a")
            assert (session["state"], session["started_at"], session["attempt"]) == ("RUNNING", started_at, 0)
        assert self.node_state() == "ready"
        number = len(self.containers)
        self.run_session(f"more-{number}")
        self.submit(f"fails-{number}", "sh", "-c", "exit 7", gpu_milli=100)
        assert self.until_state(f"fails-{number}", "FAILED")["exit_code"] == 7
        first = next(iter(self.containers))
        self.resize(first)
        self.delete(f"more-{number}")
        self.until_state(f"more-{number}", "TERMINATED")
        del self.containers[f"more-{number}"]

    def resize(self, name: str) -> None:
        """Give a running session another share, and wait until it has it."""
        share = 450 - int(self.get(f"/sessions/{name}", project="team-a")["gpu_milli"])
        self.call("PATCH", f"/sessions/{name}", {"gpu_milli": share}, project="team-a")
        self.until(lambda: self.get(f"/sessions/{name}", project="team-a")["resize_milli"] is None)
        assert self.get(f"/sessions/{name}", project="team-a")["gpu_milli"] == share


@contextmanager
def mixed_site(
    pki: Authority, database_url: str, folder: Path, reference: str, engine: docker.DockerClient
) -> Iterator[MixedSite]:
    """Run a site that is of the last release yet, with sessions of each kind of container."""
    site = MixedSite(pki, database_url, folder)
    try:
        site.serve(last_release.start)
        login = site.call("POST", "/auth/login", {"name": "admin", "password": PASSWORD})
        site.client.headers["X-CSRF-Token"] = login["csrf_token"]
        site.take_part(last_release.start)
        site.call("POST", "/images", {"name": "busybox", "tag": "1", "reference": reference})
        site.call("POST", "/projects", {"name": "team-a", "quota_milli": 2000, "period": {"ends_at": None}})
        site.until(lambda: site.get("/nodes"))
        site.run_session("trains", interactive=False)
        site.run_session("works", interactive=True)
        site.run_session("gang", replicas=2)
        yield site
    finally:
        site.agent.stop()
        site.stop()
        site.client.close()
        remove_containers(engine, ancestor=reference)


@pytest.fixture(scope="module")
def site(
    authority: Authority,  # noqa: F811
    image: str,  # noqa: F811
    engine: docker.DockerClient,
    postgresql_server: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedSite]:
    folder = tmp_path_factory.mktemp("site")
    with mixed_site(authority, new_database(postgresql_server), folder, image, engine) as running:
        yield running


def test_whatever_the_last_release_does_not_know_is_marked() -> None:
    """A field of what agents are asked for has a later protocol than theirs; of what is told, nothing is missing."""
    script = (
        "import json; import common.protocol as p; from pydantic import BaseModel; "
        "print(json.dumps([getattr(p, 'PROTOCOL', 0), {name: [[key, field.is_required(), "
        "repr(field.get_default(call_default_factory=True))] for key, field in kind.model_fields.items()] "
        "for name, kind in vars(p).items() if isinstance(kind, type) and issubclass(kind, BaseModel)}]))"
    )
    words = [sys.executable, "-c", script]
    answer = subprocess.run(words, cwd=last_release.tree(), capture_output=True, check=True, env={})
    spoken, before = json.loads(answer.stdout)
    for name, fields in before.items():
        if (kind := getattr(protocol, name, None)) in (None, Message):
            continue
        then = {key: (required, default) for key, required, default in fields}
        for key, field in kind.model_fields.items():
            now = field.is_required(), repr(field.get_default(call_default_factory=True))
            if key in then:
                assert now == then[key], f"{name}.{key} means something else than in the last release"
            else:
                assert not field.is_required(), f"{name}.{key} is missing in what the last release sends"
                marked = [mark.protocol for mark in field.metadata if isinstance(mark, Since)]
                is_told = issubclass(kind, Report)
                assert is_told or (marked and spoken < marked[0] <= protocol.PROTOCOL), f"{name}.{key} needs `Since`"
        assert issubclass(kind, Report) or then.keys() <= kind.model_fields.keys(), name


def test_an_agent_of_this_release_reports_to_an_api_of_the_last_one(site: MixedSite) -> None:
    """As where a worker was deployed and the master's step failed, or was taken back."""
    site.take_part(forks.start)
    site.check_goes_on()


def test_sessions_go_on_while_a_site_is_upgraded(site: MixedSite) -> None:
    """As a deploy does it: the master first."""
    site.take_part(last_release.start)
    site.stop()
    site.serve(forks.start)
    site.check_goes_on()
    site.take_part(forks.start)
    site.check_goes_on()
