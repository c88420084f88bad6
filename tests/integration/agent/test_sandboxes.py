"""Sandboxes on a real container engine: what they deny is denied and told, and nothing else changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest

from appliance.agent.sandbox.budget import BURST, RATE_PER_S
from common.denied_call_protocol import DeniedCall
from common.protocol import (
    ContainerSpec,
    ContainerStatus,
    Mount,
)
from common.sandbox import SandboxRule
from tests.fakes.systemd import FakeSystemd
from tests.integration.agent.calls import launch, log_of
from tests.integration.agent.conftest import Agent, Authority, FakeApi, make_agent
from tests.integration.own_engine import remove_containers
from tests.manual import documented
from tests.unit.appliance.agent.sandbox.test_filters import ENGINES

Make = Callable[..., ContainerSpec]
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "roles/node_agent/templates/usr/lib/penstock/sandbox-runtime.j2"
START_S = 60
END_S = 60

SOCKET, PERSONALITY, UNSHARE, GETUID = 41, 135, 272, 102
SOCKET_32, SOCKETCALL_32, MKDIR_32 = 359, 102, 39
CHOWN_32, CHOWN32_32, LCHOWN32_32, SETGID32_32 = 182, 212, 198, 214
UNIX, INET, NETLINK, PACKET, VSOCK = 1, 2, 16, 17, 40
LOCKED = [docker.types.Ulimit(name="memlock", soft=65536, hard=65536)]
STREAM, DATAGRAM = 1, 2


@contextmanager
def running_daemon(*options: str) -> Iterator[Path]:
    """Run a container engine of its own, with the runtime for sandboxes; return the folder with its `docker.sock`.

    It has a network namespace of its own, so that it leaves the bridge of the machine's engine alone.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-sb-"))
    runtime = folder / "sandbox-runtime"
    # this checkout's, wherever another one is installed
    ours = f"env PYTHONPATH={ROOT} {sys.executable}"
    runtime.write_text(SCRIPT.read_text().replace("{{ node_agent_venv }}/bin/python -I", ours))
    runtime.chmod(0o755)
    arguments = {
        "--data-root": folder / "data",
        "--exec-root": folder / "exec",
        "--pidfile": folder / "pid",
        "--host": f"unix://{folder}/docker.sock",
        "--add-runtime": f"penstock={runtime}",
    }
    words = [f"{option}={value}" for option, value in arguments.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--net", "dockerd", *words, *options, "--iptables=false", "--ip-forward=false"],
            stdout=log,
            stderr=log,
        )
    try:
        until((folder / "docker.sock").exists, START_S)
        yield folder
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Path]:
    """A container engine as it is."""
    with running_daemon() as folder:
        yield folder


@pytest.fixture(params=["26", "29"])
def newer_daemon(
    request: pytest.FixtureRequest, daemon: Path, client: docker.DockerClient, carried: str, tmp_path: Path
) -> Iterator[Path]:
    """A container engine with the rules for sockets that a newer one has by default."""
    container = client.containers.run(carried, ["sleep", "60"], detach=True, ulimits=LOCKED)
    [bundle] = daemon.glob(f"exec/**/{container.id}/config.json")
    rules = json.loads(bundle.read_text())["linux"]["seccomp"]
    container.remove(force=True)
    for rule in rules["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in ("socket", "socketcall")]
    of_sockets = [rule for rule in ENGINES[request.param] if {"socket", "socketcall"}.intersection(rule["names"])]
    profile = tmp_path / "seccomp.json"
    profile.write_text(json.dumps({**rules, "syscalls": [*of_sockets, *(r for r in rules["syscalls"] if r["names"])]}))
    with running_daemon(f"--seccomp-profile={profile}") as folder:
        newer = docker.DockerClient(base_url=f"unix://{folder}/docker.sock")
        newer.images.load(b"".join(client.images.get(carried).save(named=True)))
        yield folder
        remove_containers(newer)
        newer.close()


@pytest.fixture(scope="module")
def client(daemon: Path) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=f"unix://{daemon}/docker.sock")
    yield client
    client.close()


@pytest.fixture(scope="module")
def carried(engine: docker.DockerClient, client: docker.DockerClient, image: str) -> str:
    """The image, on the engine with sandboxes too."""
    client.images.load(b"".join(engine.images.get(image).save(named=True)))
    return image


@pytest.fixture
def agent(
    daemon: Path, client: docker.DockerClient, authority: Authority, fake_api: FakeApi, tmp_path: Path, carried: str
) -> Iterator[Agent]:
    """A started agent that tells at once."""
    agent = make_agent(authority, fake_api.port, tmp_path)
    agent.environment |= {
        "PENSTOCK_AGENT_DOCKER_SOCKET": str(daemon / "docker.sock"),
        "PENSTOCK_AGENT_SANDBOX_SOCKET": str(daemon / "agent.sock"),
        "PENSTOCK_AGENT_METRICS_INTERVAL_S": "0.2",
    }
    agent.start()
    yield agent
    agent.stop()
    remove_containers(client)


def sandbox(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"name": "strict", "rules": list(rules)}


def of(api: FakeApi, container: str) -> list[DeniedCall]:
    return [each for each in api.denied_calls if each.container_id == container]


def told(api: FakeApi, container: str) -> dict[tuple[str, str], DeniedCall]:
    """Return the last word on each series of a container, by process and call."""
    return {(each.process, each.call): each for each in of(api, container)}


def counts(api: FakeApi, container: str) -> dict[tuple[str, str], int]:
    return {key: denied.count for key, denied in told(api, container).items()}


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that makes any system call."""
    path = tmp_path_factory.mktemp("call") / "call"
    subprocess.run(["cc", "-static", "-O1", "-o", str(path), str(Path(__file__).with_name("call.c"))], check=True)
    return path


@pytest.fixture
def tools(agent: Agent, program: Path) -> Mount:
    """That program, where containers of this agent can mount it."""
    folder = Path(agent.environment["PENSTOCK_AGENT_MOUNT_ROOTS"]) / "tools"
    folder.mkdir()
    shutil.copy2(program, folder / "call")
    return Mount(source=str(folder), target="/tools", read_only=True)


def run(client: httpx.Client, spec: Make, tools: Mount, script: str, *rules: dict[str, Any]) -> tuple[str, list[str]]:
    """Run lines of shell in a sandbox; return the container's id, and what they print."""
    wanted = spec(command=["sh", "-c"], args=[script], mounts=[tools], sandbox=sandbox(*rules))
    launch(client, wanted)
    return wanted.id, log_of(client, wanted.id, END_S).split()


def test_a_denied_call_fails_and_is_told_and_others_do_not(agent: Agent, spec: Make, fake_api: FakeApi) -> None:
    script = "for n in 1 2 3; do mkdir /tmp$n; done; echo written > /note; cat /note; echo $PENSTOCK_SANDBOX"
    wanted = spec(
        command=["sh", "-c"],
        args=[script],
        environment={"PENSTOCK_SANDBOX": "of my own"},
        sandbox=sandbox({"calls": ["mkdir", "mkdirat"], "errno": "EROFS"}),
    )
    with agent.client() as client:
        launch(client, wanted)
        lines = log_of(client, wanted.id).splitlines()
    assert sum("Read-only file system" in line for line in lines) == 3
    # the engine keeps the order within each of the two streams alone
    assert [line for line in lines if "Read-only file system" not in line] == ["written", "strict"]
    until(lambda: counts(fake_api, wanted.id) == {("mkdir", "mkdir"): 3})
    [denied] = told(fake_api, wanted.id).values()
    assert (denied.session_id, denied.effect) == (wanted.session_id, "EROFS")
    assert 1 < denied.pid < 100, "as the container numbers it"


def test_arguments_decide_and_the_first_rule_says_what_happens(
    agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi
) -> None:
    script = [
        *(f"/tools/call 1 {SOCKET} {family:#x} 2" for family in (UNIX, NETLINK, NETLINK | 1 << 32, PACKET, INET)),
        *(f"/tools/call 1 {PERSONALITY} {persona:#x}" for persona in (0, 8, 0x20000, 0x20008, 0x4)),
        *(f"/tools/call 1 {UNSHARE} {flags:#x}" for flags in (0, 0x10000000, 0x20000)),
    ]
    with agent.client() as client:
        identity, printed = run(
            client,
            spec,
            tools,
            "; ".join(script),
            {"calls": ["socket"], "when": [{"argument": 0, "values": [PACKET]}], "errno": "EAFNOSUPPORT"},
            {"calls": ["socket"], "when": [{"argument": 0, "values": [NETLINK, PACKET]}], "errno": "EACCES"},
            {"calls": ["personality"], "when": [{"argument": 0, "bits": 8}], "errno": "EINVAL"},
        )
    assert printed[:5] == ["0", "EACCES", "EACCES", "EAFNOSUPPORT", "0"]
    # what the engine denies by itself stays denied by it: 4 is not among its personalities, nor unshare among its calls
    assert printed[5:] == ["0", "EINVAL", "0", "EINVAL", "EPERM", "EPERM", "EPERM", "EPERM"]
    expected = {("socket", "EACCES"): 2, ("socket", "EAFNOSUPPORT"): 1, ("personality", "EINVAL"): 2}
    until(lambda: {(each.call, each.effect): each.count for each in of(fake_api, identity)} == expected)


def test_two_arguments_have_to_fit_together(agent: Agent, spec: Make, tools: Mount) -> None:
    sockets = [(UNIX, STREAM), (UNIX, DATAGRAM), (INET, STREAM), (INET, DATAGRAM)]
    script = "; ".join(f"/tools/call 1 {SOCKET} {family} {kind}" for family, kind in sockets)
    both = [{"argument": 0, "values": [INET]}, {"argument": 1, "values": [DATAGRAM]}]
    with agent.client() as client:
        _, printed = run(client, spec, tools, script, {"calls": ["socket"], "when": both, "errno": "EACCES"})
    assert printed == ["0", "0", "0", "EACCES"]


def test_the_32_bit_interface_is_no_way_around(agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi) -> None:
    script = f"/tools/call 1 -{SOCKET_32} {PACKET} 2; /tools/call 1 -{SOCKETCALL_32} 1 0; /tools/call 1 -{MKDIR_32} 0"
    with agent.client() as client:
        identity, printed = run(
            client,
            spec,
            tools,
            script,
            {"calls": ["socket"], "when": [{"argument": 0, "values": [PACKET]}], "errno": "EACCES"},
            {"calls": ["mkdir"], "errno": "EROFS"},
        )
    assert printed == ["EACCES", "EACCES", "EROFS"]
    until(lambda: {call for _, call in counts(fake_api, identity)} == {"socket", "socketcall", "mkdir"})


def test_a_sandbox_opens_nothing_that_a_newer_engine_denies_to_32_bit_programs(
    newer_daemon: Path, agent: Agent, spec: Make, tools: Mount
) -> None:
    """Whose filter denies sockets to the machine's host, and those to the kernel's cryptography."""
    agent.stop()
    agent.environment |= {
        "PENSTOCK_AGENT_DOCKER_SOCKET": str(newer_daemon / "docker.sock"),
        "PENSTOCK_AGENT_SANDBOX_SOCKET": str(newer_daemon / "agent.sock"),
    }
    agent.start()
    families = (VSOCK, UNIX, PACKET)
    script = "; ".join(f"/tools/call 1 {number} {family} 2" for number in (-SOCKET_32, SOCKET) for family in families)
    rule = {"calls": ["socket"], "when": [{"argument": 0, "values": [NETLINK, PACKET]}], "errno": "EACCES"}
    with agent.client() as client:
        _, printed = run(client, spec, tools, script, rule)
        agent.stop()
    assert printed == ["EPERM", "0", "EACCES"] * 2


def test_a_call_that_32_bit_programs_have_twice_is_denied_twice(
    agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi
) -> None:
    """Such as `chown`, which is of ids of 16 bits, and `chown32`, by which programs change owners."""
    script = f"for n in {CHOWN_32} {CHOWN32_32} {LCHOWN32_32} {SETGID32_32}; do /tools/call 1 -$n 0 0; done"
    with agent.client() as client:
        identity, printed = run(
            client,
            spec,
            tools,
            script,
            {"calls": ["chown", "lchown"], "errno": "EROFS"},
            {"calls": ["setgid"], "when": [{"argument": 0, "values": [1]}], "errno": "EACCES"},
        )
    assert printed == ["EROFS", "EROFS", "EROFS", "0"]
    until(lambda: {call for _, call in counts(fake_api, identity)} == {"chown", "chown32", "lchown32"})


def test_a_rule_may_end_the_process(agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi) -> None:
    script = f"/tools/call 1 {UNSHARE} 0; echo $?; echo on"
    with agent.client() as client:
        identity, printed = run(client, spec, tools, script, {"calls": ["unshare"], "ends": True})
    assert sorted(printed) == ["137", "Killed", "on"]
    until(lambda: counts(fake_api, identity) == {("call", "unshare"): 1})
    assert told(fake_api, identity)["call", "unshare"].effect == "killed"


def test_a_loop_is_slowed_down_and_told_as_one_series(
    agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi
) -> None:
    times = BURST + 2 * RATE_PER_S
    started = time.monotonic()
    with agent.client() as client:
        identity, printed = run(
            client,
            spec,
            tools,
            f"/tools/call {times} {UNSHARE} 0; /tools/call {times} {GETUID}",
            {"calls": ["unshare"]},
        )
    assert printed == ["EPERM", "0"]
    assert time.monotonic() - started > 1.5
    until(lambda: counts(fake_api, identity) == {("call", "unshare"): times})


def test_calls_stay_denied_without_the_agent_and_are_told_again_by_the_next_one(
    agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi, client: docker.DockerClient
) -> None:
    script = f"while true; do /tools/call 1 {UNSHARE} 0; sleep 0.1; done"
    wanted = spec(
        command=["sh", "-c"], args=[script], mounts=[tools], sandbox=sandbox({"calls": ["unshare"], "errno": "EACCES"})
    )
    with agent.client() as http:
        launch(http, wanted)
    container = client.containers.get(f"penstock-{wanted.id}")
    until(lambda: b"EACCES" in container.logs())
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait()
    until(lambda: b"ENOSYS" in container.logs())
    assert b"0\n" not in container.logs()
    agent.start()
    # what began before is denied as before, and nobody is told; what is begun now is
    fake_api.denied_calls.clear()
    assert container.exec_run(["/tools/call", "1", str(UNSHARE), "0"]).output == b"EACCES\n"
    until(lambda: counts(fake_api, wanted.id) == {("call", "unshare"): 1})
    assert container.logs(tail=1) == b"ENOSYS\n"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[FakeSystemd]:
    fake = FakeSystemd(tmp_path)
    yield fake
    fake.close()


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
def test_running_sandboxes_stay_audited_while_the_agent_is_started_again(
    agent: Agent,
    spec: Make,
    tools: Mount,
    fake_api: FakeApi,
    client: docker.DockerClient,
    systemd: FakeSystemd,
    kill: bool,
) -> None:
    """Calls end by their rule, and the next agent tells what is denied from then on.

    The one that a killed agent had taken, and not answered yet, may end with ENOSYS (decision 26).
    """
    agent.stop()
    agent.start(systemd.run)
    script = f"while true; do /tools/call 1 {UNSHARE} 0; sleep 0.05; done"
    wanted = spec(
        command=["sh", "-c"], args=[script], mounts=[tools], sandbox=sandbox({"calls": ["unshare"], "errno": "EACCES"})
    )
    with agent.client() as http:
        launch(http, wanted)
    container = client.containers.get(f"penstock-{wanted.id}")
    until(lambda: bool(counts(fake_api, wanted.id)))
    assert agent.process is not None
    if kill:
        agent.process.kill()
    else:
        agent.process.terminate()
    agent.process.wait()
    fake_api.denied_calls.clear()
    agent.start(systemd.run)
    until(lambda: counts(fake_api, wanted.id).get(("call", "unshare"), 0) > 3)
    ended = Counter(container.logs().split())
    assert ended.pop(b"ENOSYS", 0) <= (1 if kill else 0)
    assert set(ended) == {b"EACCES"}
    container.remove(force=True)
    until(lambda: not systemd.stored)


def test_all_commands_in_a_container_have_one_budget(
    agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi, client: docker.DockerClient
) -> None:
    """Each command that is run in it later has a filter of its own, and none has more calls for that."""
    wanted = spec(mounts=[tools], sandbox=sandbox({"calls": ["unshare"]}))
    with agent.client() as http:
        launch(http, wanted)
    container, waits_s = client.containers.get(f"penstock-{wanted.id}"), 3
    more = waits_s * RATE_PER_S
    started = time.monotonic()
    container.exec_run(["/tools/call", str(BURST), str(UNSHARE), "0"])
    container.exec_run(["/tools/call", str(more), str(UNSHARE), "0"])
    assert time.monotonic() - started > waits_s, "however long the commands take to start"
    until(lambda: sum(counts(fake_api, wanted.id).values()) == BURST + more)


@pytest.mark.parametrize("example", documented(), ids=lambda example: example[0].split()[3])
def test_every_example_of_the_manual_starts(agent: Agent, spec: Make, example: tuple[str, list[SandboxRule]]) -> None:
    given = {"name": "strict", "rules": [rule.model_dump() for rule in example[1]]}
    with agent.client() as http:
        state = launch(http, spec(sandbox=given))
    assert state.status is ContainerStatus.RUNNING, state.error


def test_what_the_api_does_not_take_is_told_later(agent: Agent, spec: Make, tools: Mount, fake_api: FakeApi) -> None:
    fake_api.status = 503
    with agent.client() as client:
        identity, _ = run(client, spec, tools, f"/tools/call 5 {UNSHARE} 0", {"calls": ["unshare"]})
    time.sleep(0.5)
    assert not fake_api.denied_calls
    fake_api.status = 200
    until(lambda: counts(fake_api, identity) == {("call", "unshare"): 5})


def test_without_a_sandbox_nothing_changes(agent: Agent, spec: Make, client: docker.DockerClient) -> None:
    wanted = spec()
    with agent.client() as http:
        launch(http, wanted)
    container = client.containers.get(f"penstock-{wanted.id}")
    assert container.attrs["HostConfig"]["Runtime"] == "runc"
    assert not any("SANDBOX" in entry for entry in container.attrs["Config"]["Env"])
    assert container.exec_run(["mkdir", "/folder"]).exit_code == 0


def test_a_sandbox_that_cannot_be_held_keeps_its_container_from_running(
    agent: Agent, spec: Make, client: docker.DockerClient
) -> None:
    many = [
        {"calls": ["socket"], "when": [{"argument": argument, "values": list(range(start, 4096, 256))}]}
        for argument in range(3)
        for start in range(20)
    ]
    odd = spec(sandbox=sandbox({"calls": ["mkdirrat"]}))
    long = spec(sandbox=sandbox(*many))
    with agent.client() as http:
        reasons = [launch(http, wanted).error for wanted in (odd, long)]
    assert "no system call mkdirrat" in reasons[0]
    assert "the sandbox cannot be held: the rules for socket" in reasons[1]
    assert not client.containers.list()


@pytest.mark.parametrize("missing", ["runtime", "python"])
def test_in_the_midst_of_an_upgrade_only_sandboxes_wait(agent: Agent, spec: Make, daemon: Path, missing: str) -> None:
    runtime = daemon / "sandbox-runtime"
    words = runtime.read_text()
    if missing == "runtime":
        runtime.unlink()
    else:
        runtime.write_text(words.replace(sys.executable, str(daemon / "no-python")))
    try:
        with agent.client() as http:
            states = [launch(http, spec(sandbox=given)) for given in (None, sandbox({"calls": ["unshare"]}))]
    finally:
        runtime.write_text(words)
        runtime.chmod(0o755)
    assert [state.status for state in states] == [ContainerStatus.RUNNING, ContainerStatus.FAILED]


def test_an_engine_without_the_runtime_is_told(
    authority: Authority, fake_api: FakeApi, tmp_path: Path, spec: Make, engine: docker.DockerClient
) -> None:
    assert "penstock" not in engine.info()["Runtimes"]
    plain = make_agent(authority, fake_api.port, tmp_path)
    plain.start()
    try:
        with plain.client() as http:
            state = launch(http, spec(sandbox=sandbox({"calls": ["unshare"]})))
    finally:
        plain.stop()
    assert state.status is ContainerStatus.FAILED
    assert "no runtime that holds sandboxes" in state.error
