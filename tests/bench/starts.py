"""Starts and ends of sessions: what they cost the database, how many a second, how soon. One JSON line.

The API is a process of its own on PostgreSQL, behind a unix socket as behind the edge; agents answer it over TLS and
report what changes at once, as real ones do. PostgreSQL counts the statements of the API: all that it is sent, with
the begin and the end of transactions, but not what this bench looks at.

Exits 1 where a start, an end or an idle second takes more statements than aimed at. Rates and times depend on the
machine, and are printed with the aims for two quiet cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.bench.control import PROJECTS, V1, administrator, api_process, count_nodes, cpu_seconds, projects, say, until
from tests.fakes.agents import FleetOfAgents, Way
from tests.integration.agent.conftest import Authority, make_authority
from tests.postgresql import new_database, running_server

COUNTING = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "10000"}
AIMS = {"statements_per_start": 25.0, "statements_per_end": 15.0, "idle_statements_per_second": 2.0}
"""What decides; more than that is too much."""
TIMED_AIMS = {"starts_per_second": 40.0, "submit_to_running_ms": 300.0}
BENCH = "bench"
"""The role under which this bench looks at the database, so that its statements can be told from the API's."""
SHOWN = 25


def main() -> None:
    """Measure and print; the exit code says whether the aims are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=300, help="started as fast as the API takes them")
    parser.add_argument("--at-once", type=int, default=32, help="requests under way at the same time")
    parser.add_argument("--load", type=int, default=8, help="users who submit, wait, delete and begin again")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--show", action="store_true", help="print which statements were sent how often")
    options = parser.parse_args()
    with running_server(COUNTING) as folder, tempfile.TemporaryDirectory() as home:
        url, authority = new_database(folder), make_authority(Path(home))
        with api_process(url, Path(home), authority) as pid:
            figures = asyncio.run(measure(options, url, folder, authority, pid))
    missed = [name for name, most in AIMS.items() if figures[name] > most]
    print(json.dumps({**figures, "aims": AIMS | TIMED_AIMS, "missed": missed}))
    sys.exit(1 if missed else 0)


async def measure(
    options: argparse.Namespace, url: str, folder: Path, authority: Authority, pid: int
) -> dict[str, Any]:
    """Return all figures."""
    socket = authority.folder / "api.sock"
    async with administrator(socket) as client, watching(url, folder) as watch:
        fleet = FleetOfAgents(Way(authority.ca, authority.issue, socket=socket), options.agents)
        await fleet.start(spread_s=5.0)
        await until(lambda: count_nodes(client, options.agents), "all nodes are known")
        await projects(client)
        bench = Bench(client, watch, pid, options)
        await bench.warm_up()
        say("idle")
        idle = await bench.idle()
        say(f"{idle:.2f} statements a second; {options.sessions} starts")
        starts = await bench.starts()
        say(f"{starts}; as many ends")
        ends = await bench.ends()
        say(f"{ends}; a load of {options.load}")
        load = await bench.load()
        await fleet.stop()
        assert not fleet.refused(), fleet.refused()[:3]
    return {
        "agents": options.agents,
        "sessions": options.sessions,
        "idle_statements_per_second": round(idle, 2),
        **starts,
        **ends,
        "load": options.load,
        **load,
    }


@dataclass
class Watch:
    """What the database says of sessions as it comes, and how many statements the API has sent."""

    connection: psycopg.AsyncConnection
    listener: psycopg.AsyncConnection
    states: dict[str, str] = field(default_factory=dict)
    waiting: defaultdict[str, list[tuple[tuple[str, ...], asyncio.Future[float]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    async def listen(self) -> None:
        """Look at each session of which a notice is given, for ever."""
        async for notice in self.listener.notifies():
            kind, _, id_ = notice.payload.partition(" ")
            if kind == "session":
                await self.look(id_)

    async def look(self, id_: str) -> None:
        """Read a session's state, and tell those who wait for it."""
        moment = time.perf_counter()
        row = await (await self.connection.execute("SELECT state FROM sessions WHERE id = %s", [id_])).fetchone()
        self.states[id_] = row[0] if row else ""
        for states, future in self.waiting[id_]:
            if self.states[id_] in states and not future.done():
                future.set_result(moment)

    async def reached(self, id_: str, *states: str) -> float:
        """Return when a session has come to one of some states."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.waiting[id_].append((states, future))
        await self.look(id_)
        return await asyncio.wait_for(future, 120)

    async def reset(self) -> None:
        """Count from zero."""
        await self.connection.execute("SELECT pg_stat_statements_reset()")

    async def sent(self) -> list[tuple[int, str]]:
        """Return how often the API has sent which statement, the most frequent ones first."""
        query = "SELECT calls, query FROM pg_stat_statements WHERE userid <> %s::regrole ORDER BY calls DESC"
        rows = await (await self.connection.execute(query, [BENCH])).fetchall()
        return [(int(calls), str(text)) for calls, text in rows]


@asynccontextmanager
async def watching(url: str, folder: Path) -> AsyncIterator[Watch]:
    """Give a watch on the API's database under a role of its own."""
    name = url.partition("@/")[2].partition("?")[0]
    async with await psycopg.AsyncConnection.connect(f"host={folder} user=tests dbname={name}", autocommit=True) as own:
        await own.execute("CREATE EXTENSION pg_stat_statements")
        await own.execute(f"CREATE ROLE {BENCH} SUPERUSER LOGIN")
    words = f"host={folder} user={BENCH} dbname={name}"
    async with (
        await psycopg.AsyncConnection.connect(words, autocommit=True) as connection,
        await psycopg.AsyncConnection.connect(words, autocommit=True) as listener,
    ):
        watch = Watch(connection, listener)
        await listener.execute("LISTEN penstock")
        task = asyncio.create_task(watch.listen())
        try:
            yield watch
        finally:
            task.cancel()


@dataclass
class Bench:
    """The API under load, as its users and PostgreSQL see it."""

    client: httpx.AsyncClient
    watch: Watch
    pid: int
    options: argparse.Namespace
    ids: dict[int, str] = field(default_factory=dict)

    async def warm_up(self) -> None:
        """Start and end some sessions, so that every connection is open and every statement is known."""
        numbers = range(10_000, 10_000 + 2 * self.options.load)
        await self.each(numbers, self.start)
        await self.each(numbers, self.end)
        await asyncio.sleep(3)

    async def idle(self) -> float:
        """Return statements a second while agents report that nothing is new."""
        await self.watch.reset()
        await asyncio.sleep(self.options.idle)
        return await self.counted("idle", self.options.idle)

    async def starts(self) -> dict[str, float]:
        """Return what a start takes, from its submission until the session runs, many of them at a time."""
        count = self.options.sessions
        await self.watch.reset()
        begun, cpu = time.perf_counter(), cpu_seconds(self.pid)
        await self.each(range(count), self.start)
        took = time.perf_counter() - begun
        return {
            "starts_per_second": round(count / took, 1),
            "api_cpu_ms_per_start": round((cpu_seconds(self.pid) - cpu) * 1000 / count, 1),
            "statements_per_start": round(await self.counted("start", count), 1),
        }

    async def ends(self) -> dict[str, float]:
        """Return what an end takes, from its wish until the session has ended."""
        count = self.options.sessions
        await self.watch.reset()
        begun = time.perf_counter()
        await self.each(range(count), self.end)
        took = time.perf_counter() - begun
        return {
            "ends_per_second": round(count / took, 1),
            "statements_per_end": round(await self.counted("end", count), 1),
        }

    async def load(self) -> dict[str, float]:
        """Return how soon sessions run that some users submit, delete and submit again all the time."""
        times: list[float] = []
        await self.watch.reset()

        async def user(number: int) -> None:
            for turn in range(self.options.rounds):
                name = 20_000 + number * self.options.rounds + turn
                times.append(await self.start(name))
                await self.end(name)

        await asyncio.gather(*(user(number) for number in range(self.options.load)))
        cuts = statistics.quantiles(times, n=20)
        return {
            "submit_to_running_ms": round(statistics.median(times) * 1000),
            "submit_to_running_p95_ms": round(cuts[-1] * 1000),
            "statements_per_start_and_end": round(await self.counted("start and end at the load", len(times)), 1),
        }

    async def start(self, number: int) -> float:
        """Submit a session and return after how many seconds it ran."""
        project = f"team-{number % PROJECTS}"
        body = {"name": f"start-{number}", "project": project, "image": "python", "gpu_milli": 1000}
        begun = time.perf_counter()
        answer = await self.client.post(f"{V1}/sessions", json=body)
        answer.raise_for_status()
        self.ids[number] = answer.json()["id"]
        return await self.watch.reached(self.ids[number], "RUNNING") - begun

    async def end(self, number: int) -> None:
        """Delete a session and return when it has ended."""
        params = {"project": f"team-{number % PROJECTS}"}
        (await self.client.delete(f"{V1}/sessions/start-{number}", params=params)).raise_for_status()
        await self.watch.reached(self.ids[number], "TERMINATED")

    async def each(self, numbers: range, work: Callable[[int], Awaitable[Any]]) -> None:
        """Do something for each number, so many at once."""
        turns = asyncio.Semaphore(self.options.at_once)

        async def one(number: int) -> None:
            async with turns:
                await work(number)

        await asyncio.gather(*(one(number) for number in numbers))

    async def counted(self, what: str, by: float) -> float:
        """Return the statements since the last reset, divided; shows them where that is asked for."""
        sent = await self.watch.sent()
        if self.options.show:
            say(f"--- {what}")
            for calls, text in sent[:SHOWN]:
                say(f"{calls / by:8.2f}  {' '.join(text.split())[:170]}")
        return sum(calls for calls, _ in sent) / by


if __name__ == "__main__":
    main()
