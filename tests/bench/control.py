"""The control API under a large site: 2,000 simulated agents, 10,000 running sessions, PostgreSQL. One JSON line.

The API is a process of its own on a unix socket, as it is behind the edge; agents and users share this process. CPU
shares are those of the API's process in percent of one core, while nothing but the named load is there. The share of 50
users is what they add after their first look: each asks for the sessions of its project every 5 s, as the console does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
from sqlalchemy import insert, select

from api.clock import now
from api.database import Database
from api.tables.nodes import Gpu, Node
from api.tables.projects import Project
from api.tables.sessions import Container, GpuShareRow, Kind, Session, State
from common.gpu.share import GpuShare
from common.protocol import ContainerState, ContainerStatus
from tests.api_process import api_environment
from tests.fakes.agents import Behaviour, FleetOfAgents, Way
from tests.integration.agent.conftest import Authority, make_authority
from tests.postgresql import new_database, running_server

PASSWORD = "Correct1horse!"
V1 = "/api/v1"
PROJECTS = 50
POLL_S = 5.0
FILL_AT_ONCE = 400
"""Sessions that are made in one transaction: those of 50 agents, which are silent meanwhile."""

T = TypeVar("T")

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--starts", type=int, default=300)
    parser.add_argument("--window", type=float, default=30.0, help="seconds over which a CPU share is taken")
    options = parser.parse_args()
    with served() as (url, authority, pid):
        print(json.dumps(asyncio.run(measure(options, url, authority, pid))))


@contextmanager
def served(**more: str | Path) -> Iterator[tuple[str, Authority, int]]:
    """Run PostgreSQL and an API on it; give the database's URL, the authority of agents, and the API's process id.

    `more` are settings of the API.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running_server() as folder, tempfile.TemporaryDirectory() as home:
        url, authority = new_database(folder), make_authority(Path(home))
        with api_process(url, Path(home), authority, **more) as pid:
            yield url, authority, pid


async def measure(options: argparse.Namespace, url: str, authority: Authority, pid: int) -> dict[str, Any]:
    """Return all figures."""
    socket = authority.folder / "api.sock"
    async with administrator(socket) as client:
        fleet = FleetOfAgents(Way(authority.ca, authority.issue, socket=socket), options.agents)
        say(f"{options.agents} agents begin to report")
        await fleet.start(spread_s=5.0)
        await until(lambda: count_nodes(client, options.agents), "all nodes are known")
        await projects(client)
        await fill(Database(url), fleet, options.sessions)
        await asyncio.sleep(10)
        say("heartbeats alone")
        heartbeats = await cpu_share(pid, options.window)
        say(f"{heartbeats:.1f} % of a core; pages")
        pages = {
            "list_nodes": await latency(client, f"{V1}/nodes", {"limit": 100}),
            "list_all_nodes": await latency(client, f"{V1}/nodes", {"limit": options.agents}, rounds=10),
            "list_sessions": await latency(client, f"{V1}/sessions", {"limit": 100}),
        }
        say(f"{pages}; {options.users} users")
        users = [asyncio.create_task(poll(client, number)) for number in range(options.users)]
        await asyncio.sleep(POLL_S)
        with_users = await cpu_share(pid, options.window)
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)
        say(f"{with_users:.1f} % of a core; {options.starts} starts")
        rate = await start_rate(client, options.starts)
        await fleet.stop()
        assert not fleet.refused(), fleet.refused()[:3]
    return {
        "agents": options.agents,
        "sessions": options.sessions,
        "heartbeats_cpu_percent": round(heartbeats, 1),
        "users": options.users,
        "users_cpu_percent": round(max(0.0, with_users - heartbeats), 1),
        **{f"{name}_{key}": value for name, found in pages.items() for key, value in found.items()},
        "starts_per_second": round(rate, 1),
    }


@contextmanager
def api_process(url: str, home: Path, authority: Authority, **more: str | Path) -> Iterator[int]:
    """Run an API with an administrator, and give its process id; `more` are settings in its environment."""
    environment = api_environment(authority, url, home / "api.sock") | {
        "PENSTOCK_API_NODE_LOST_S": "120",
        "PENSTOCK_API_REGISTRIES": "reservoir:5000",
        **{f"PENSTOCK_API_{name.upper()}": str(value) for name, value in more.items()},
    }
    command = [sys.executable, "-m", "api"]
    subprocess.run([*command, "migrate"], env=environment, check=True, capture_output=True)
    create = [*command, "create-admin", "--name", "admin"]
    subprocess.run(create, env=environment, input=PASSWORD, text=True, check=True, capture_output=True)
    log = home / "log"
    with log.open("w") as output:
        process = subprocess.Popen([*command, "serve"], env=environment, stdout=output, stderr=output)
    try:
        yield process.pid
    except Exception:
        print(log.read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(60)


@asynccontextmanager
async def administrator(socket: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client with an administrator's key, once the API answers."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket), retries=3)
    async with httpx.AsyncClient(transport=transport, base_url="http://api", timeout=120) as client:
        await until(lambda: answers(client), "the API answers")
        login = await client.post(f"{V1}/auth/login", json={"name": "admin", "password": PASSWORD})
        login.raise_for_status()
        cookies = "; ".join(part.split(";")[0] for part in login.headers.get_list("set-cookie"))
        headers = {"X-CSRF-Token": login.json().get("csrf_token", ""), "Cookie": cookies}
        made = await client.post(f"{V1}/api-keys", json={"name": "bench"}, headers=headers)
        made.raise_for_status()
        client.headers["Authorization"] = f"Bearer {made.json()['key']}"
        client.cookies.clear()
        yield client


async def projects(client: httpx.AsyncClient) -> None:
    """Make the projects, and an image."""
    period = {"starts_at": None, "ends_at": None}
    for number in range(PROJECTS):
        body = {"name": f"team-{number}", "quota_milli": 320_000, "period": period}
        (await client.post(f"{V1}/projects", json=body)).raise_for_status()
    image = {"name": "python", "tag": "3.11", "reference": "reservoir:5000/penstock/python:3.11"}
    (await client.post(f"{V1}/images", json=image)).raise_for_status()


async def fill(database: Database, fleet: FleetOfAgents, count: int) -> None:
    """Let sessions of one GPU run, in the database and on the agents, as if they had been started."""
    say(f"{count} sessions run")
    async with database.reading() as db:
        nodes = {node.name: node.id for node in await db.scalars(select(Node))}
        owners = (await db.scalars(select(Project.id).order_by(Project.name))).all()
        gpus = (await db.execute(select(Gpu.node_id, Gpu.index, Gpu.uuid).order_by(Gpu.node_id, Gpu.index))).all()
    names = {id_: name for name, id_ in nodes.items()}
    for part in batched(gpus[:count], FILL_AT_ONCE):
        sessions, containers, shares, states = [], [], [], []
        for number, (node_id, index, uuid) in part:
            session_id, moment = uuid4(), now()
            sessions.append(row(session_id, number, owners[number % len(owners)]))
            status = {"status": ContainerStatus.RUNNING, "started_at": moment}
            place = {"node_id": node_id, "ports": {}, "error": ""}
            containers.append({"session_id": session_id, "rank": 0, **place, **status})
            shares.append({"session_id": session_id, "rank": 0, "index": index, "uuid": uuid, "milli": 1000})
            state = ContainerState(
                id=f"session-{session_id}-0-0",
                session_id=str(session_id),
                gpus=[GpuShare(uuid=uuid, index=index, milli=1000)],
                **status,  # type: ignore[arg-type]
            )
            states.append((fleet[names[node_id]], state))
        # neither side may speak of a session that the other does not know yet
        for agent, _ in states:
            agent.behaviour = Behaviour(mute=True)
        async with database.transaction() as db:
            await db.execute(insert(Session), sessions)
            await db.execute(insert(Container), containers)
            await db.execute(insert(GpuShareRow), shares)
        for agent, state in states:
            agent.containers[state.id] = state
            agent.behaviour = Behaviour()
    await database.close()


def batched(rows: Sequence[T], size: int) -> Iterator[list[tuple[int, T]]]:
    """Yield rows with their numbers, so many at once."""
    numbered = list(enumerate(rows))
    for begin in range(0, len(numbered), size):
        yield numbered[begin : begin + size]


def row(session_id: UUID, number: int, project: UUID) -> dict[str, Any]:
    """Return a running session."""
    moment = now()
    return {
        "id": session_id,
        "name": f"run-{number}",
        "project_id": project,
        "user_name": "admin",
        "image": "python:3.11",
        "reference": "reservoir:5000/penstock/python:3.11",
        "kind": Kind.TRAINING,
        "preemptible": True,
        "gpu_milli": 1000,
        "gpu_models": [],
        "args": [],
        "environment": {},
        "mounts": [],
        "state": State.RUNNING,
        "created_at": moment,
        "scheduled_at": moment,
        "started_at": moment,
    }


async def poll(client: httpx.AsyncClient, number: int) -> None:
    """Ask for a project's sessions for ever, as a user who watches them does."""
    await asyncio.sleep(POLL_S * number / 50)
    tag = ""
    while True:
        begun = time.monotonic()
        headers = {"If-None-Match": tag} if tag else {}
        answer = await client.get(f"{V1}/sessions", params={"project": f"team-{number % PROJECTS}"}, headers=headers)
        tag = answer.headers.get("etag", "")
        await asyncio.sleep(max(0.0, POLL_S - (time.monotonic() - begun)))


async def latency(
    client: httpx.AsyncClient, path: str, params: Mapping[str, int | str], rounds: int = 100
) -> dict[str, float]:
    """Return how long an answer takes, in milliseconds."""
    seconds = []
    for _ in range(rounds + 3):
        begun = time.perf_counter()
        (await client.get(path, params=params)).raise_for_status()
        seconds.append(time.perf_counter() - begun)
    cuts = statistics.quantiles(seconds[3:], n=20)
    return {"p50_ms": round(statistics.median(seconds[3:]) * 1000, 1), "p95_ms": round(cuts[-1] * 1000, 1)}


async def start_rate(client: httpx.AsyncClient, count: int) -> float:
    """Return sessions a second, from the first submission until all run."""
    begun = time.perf_counter()
    turns = asyncio.Semaphore(16)

    async def submit(number: int) -> None:
        body = {"name": f"start-{number}", "project": f"team-{number % PROJECTS}", "image": "python", "gpu_milli": 1000}
        async with turns:
            (await client.post(f"{V1}/sessions", json=body)).raise_for_status()

    await asyncio.gather(*(submit(number) for number in range(count)))
    waiting = set(range(count))

    async def all_run() -> bool:
        for number in sorted(waiting):
            path, params = f"{V1}/sessions/start-{number}", {"project": f"team-{number % PROJECTS}"}
            if (await client.get(path, params=params)).json()["state"] != "RUNNING":
                return False
            waiting.discard(number)
        return True

    await until(all_run, "all sessions run", deadline_s=300)
    return count / (time.perf_counter() - begun)


async def cpu_share(pid: int, window_s: float) -> float:
    """Return the CPU that a process takes over a while, in percent of one core."""
    begun, before = time.monotonic(), cpu_seconds(pid)
    await asyncio.sleep(window_s)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - begun)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def count_nodes(client: httpx.AsyncClient, wanted: int) -> bool:
    """Return whether so many nodes are known."""
    return len(await list_nodes(client)) >= wanted


async def list_nodes(client: httpx.AsyncClient, **asked: str) -> list[dict[str, Any]]:
    """Return the nodes that are asked for: an answer has as many as its bytes allow, and says where to go on."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.get(f"{V1}/nodes", params=asked)
        answer.raise_for_status()
        found += answer.json()
        if (after := answer.headers.get("X-Next")) is None:
            return found
        asked["after"] = after


async def answers(client: httpx.AsyncClient) -> bool:
    """Return whether the API answers."""
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False


async def until(condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = 120.0) -> None:
    """Wait until a condition holds; raises TimeoutError that names it."""
    end = time.monotonic() + deadline_s
    while not await condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:.0f} s until {what}")
        await asyncio.sleep(0.2)


def say(what: str) -> None:
    """Show on standard error how far it is."""
    print(f"   {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
