"""All nodes that a site may have: 2,000 simulated agents begin at once, and report for 10 minutes. One JSON line.

`python -m tests.bench.nodes` runs PostgreSQL and the API in processes of their own, as `tests.bench.control` does, with
the time after which a silent node is lost as it is where nobody says otherwise; it exits with 1 where a figure misses
its aim:

- `known_s`: from the moment when all agents are switched on until the last node is known.
- `lost`: nodes that were lost at any look while all reported; one look follows each list.
- `page_p95_ms`: of the first hundred nodes, asked for once a second all the while, the 95th percentile.
- `all_p95_ms`: of all nodes, page after page, each tenth time; it has no aim.
- `reporting_percent`: of one core, what the API takes for the heartbeats and these lists.
- `back_s`: the same as `known_s` after a power failure, when every node is lost and all agents begin at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time

import httpx

from tests.bench import control
from tests.fakes.agents import FleetOfAgents, Way
from tests.integration.agent.conftest import Authority

AIMS = {"known_s": 60.0, "lost": 0.0, "page_p95_ms": 50.0, "reporting_percent": 50.0, "back_s": 60.0}
NODE_LOST_S = "15"
LOOK_S = 1.0
ALL_EACH = 10
"""All nodes are listed with every so many looks."""


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--window", type=float, default=600.0, help="seconds for which all report")
    options = parser.parse_args()
    with control.served(node_lost_s=NODE_LOST_S) as (_, authority, pid):
        figures = asyncio.run(measure(options.agents, options.window, authority, pid))
    print(json.dumps({"agents": options.agents, "window_s": options.window, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


async def measure(count: int, window_s: float, authority: Authority, pid: int) -> dict[str, float]:
    """Return the figures."""
    socket = authority.folder / "api.sock"
    async with control.administrator(socket) as client:
        fleet = FleetOfAgents(Way(authority.ca, authority.issue, socket=socket), count)
        control.say(f"{count} agents begin at once")
        known_s = await begin(client, fleet, count)
        control.say(f"{known_s:.1f} s; they report for {window_s:.0f} s")
        figures = await watch(client, window_s, pid)
        control.say(f"{figures}; power fails, and comes back")
        await fleet.stop()
        for agent in fleet.agents.values():
            agent.port = 0  # by now another one may have the old one: here they share one address
        await control.until(lambda: all_are(client, count, "lost"), "all nodes are lost")
        back_s = await begin(client, fleet, count)
        await fleet.stop()
    return {"known_s": round(known_s, 1), **figures, "back_s": round(back_s, 1)}


async def begin(client: httpx.AsyncClient, fleet: FleetOfAgents, count: int) -> float:
    """Start all agents at once; returns how many seconds it takes until all nodes are ready."""
    begun = time.monotonic()
    await fleet.start()
    await control.until(lambda: all_are(client, count, "ready"), "all nodes are ready", deadline_s=300)
    return time.monotonic() - begun


async def watch(client: httpx.AsyncClient, window_s: float, pid: int) -> dict[str, float]:
    """Look at the nodes for a while, in which all agents report."""
    pages, lists, lost = list[float](), list[float](), set[str]()
    begun, before = time.monotonic(), control.cpu_seconds(pid)
    while (passed := time.monotonic() - begun) < window_s:
        looked = time.perf_counter()
        (await client.get(f"{control.V1}/nodes", params={"limit": 100})).raise_for_status()
        pages.append(1000 * (time.perf_counter() - looked))
        if len(pages) % ALL_EACH == 0:
            looked = time.perf_counter()
            await control.list_nodes(client)
            lists.append(1000 * (time.perf_counter() - looked))
        lost |= {node["name"] for node in await control.list_nodes(client, state="lost")}
        await asyncio.sleep(max(0.0, LOOK_S - (time.monotonic() - begun - passed)))
    return {
        "lost": float(len(lost)),
        "page_p95_ms": p95(pages),
        "all_p95_ms": p95(lists),
        "reporting_percent": round(100 * (control.cpu_seconds(pid) - before) / (time.monotonic() - begun), 1),
    }


def p95(values: list[float]) -> float:
    """Return the 95th percentile, of a short window the most."""
    return round(statistics.quantiles(values, n=20)[-1] if len(values) > 1 else max(values, default=0.0), 1)


async def all_are(client: httpx.AsyncClient, count: int, state: str) -> bool:
    """Return whether so many nodes are in a state."""
    return len(await control.list_nodes(client, state=state)) == count


if __name__ == "__main__":
    main()
