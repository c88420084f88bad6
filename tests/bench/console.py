"""What pages of the console cost on a large site: 1,250 agents, 10,000 running sessions. One JSON line.

`python -m tests.bench.console` runs PostgreSQL and the API in processes of their own, as `tests.bench.control` does,
and exits with 1 where a figure misses its aim:

- `first_bytes`: of the page after the login with its style and scripts, these packed as the edge does.
- `first_ms`: until all of them are there, one after the other.
- `list_p95_ms`: of the list of all sessions, the 95th percentile.
- `search_p95_ms`: of that list for a word that few of them have.
- `watching_percent`: of one core, what 50 browsers that show the list add to the API; each asks as often as its page
  says. What that takes without them is measured before and after, for it differs by a multiple of what they add; by how
  much it did is `alone_differs_percent`, and where that is more than the aim the figure says nothing.
  A window is a minute, or it would hold more or less than it should of what is done once in each: all lists are made
  anew, as they say how many minutes ago something was, and the API looks at every agent.
- `changing_percent`: the same while a session in each second changes, so that the list is made anew; it has no aim.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from api.database import Database
from api.endpoints.access import SEEN_HEADER
from tests.bench import control
from tests.fakes.agents import FleetOfAgents, Way
from tests.integration.agent.conftest import Authority

AIMS = {
    "first_bytes": 50_000.0,
    "first_ms": 300.0,
    "list_p95_ms": 50.0,
    "search_p95_ms": 100.0,
    "watching_percent": 10.0,
}
BROWSERS, OPENED_S = 50, 5.0
EDGE_LEVEL = 1
"""How hard nginx packs, where nobody says otherwise."""

_ASSET = re.compile(r'(?:src|href)="(/static/[^"]+)"')
_POLL = re.compile(r'hx-trigger="every (\d+)s')
_VERSION = re.compile(r'data-version="([^"]*)"')
_CHANGE = "UPDATE sessions SET reason = reason || '.', revision = revision + 1 WHERE name = 'run-0'"


def main() -> None:
    """Measure, print one line, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, default=1250)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--window", type=float, default=60.0, help="seconds over which a CPU share is taken")
    options = parser.parse_args()
    with control.served() as (url, authority, pid):
        figures = asyncio.run(measure(options, url, authority, pid))
    print(json.dumps({"agents": options.agents, "sessions": options.sessions, **figures}))
    if missed := [f"{name} is {figures[name]}, its aim {aim}" for name, aim in AIMS.items() if figures[name] > aim]:
        sys.exit("; ".join(missed))


async def measure(options: argparse.Namespace, url: str, authority: Authority, pid: int) -> dict[str, float]:
    """Return the figures."""
    socket = authority.folder / "api.sock"
    async with control.administrator(socket) as client, signed_in(socket) as browser:
        fleet = FleetOfAgents(Way(authority.ca, authority.issue, socket=socket), options.agents)
        await fleet.start(spread_s=5.0)
        await control.until(lambda: control.count_nodes(client, options.agents), "all nodes are known")
        await control.projects(client)
        database = Database(url)
        await control.fill(database, fleet, options.sessions)
        await asyncio.sleep(10)
        figures = await pages(browser, f"run-{options.sessions - 1}")
        before = await control.cpu_share(pid, options.window)
        with watching(browser) as browsers:
            await asyncio.sleep(2 * OPENED_S)
            watched = await control.cpu_share(pid, options.window)
            changing = asyncio.create_task(change(Database(url)))
            changed = await control.cpu_share(pid, options.window)
            assert not any(task.done() for task in (*browsers, changing)), "somebody stopped to look"
            changing.cancel()
        await asyncio.sleep(2 * OPENED_S)
        after = await control.cpu_share(pid, options.window)
        alone = (before + after) / 2
        figures["watching_percent"] = round(max(0.0, watched - alone), 1)
        figures["changing_percent"] = round(max(0.0, changed - alone), 1)
        figures["alone_differs_percent"] = round(abs(after - before), 1)
        await fleet.stop()
        assert not fleet.refused(), fleet.refused()[:3]
    return figures


@asynccontextmanager
async def signed_in(socket: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Give an administrator's browser; its cookies are for a way that is encrypted, which the edge ends."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket), retries=3)
    accept = {"Accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", timeout=120, headers=accept) as browser:
        login = await browser.post(f"{control.V1}/auth/login", json={"name": "admin", "password": control.PASSWORD})
        login.raise_for_status()
        browser.headers["Cookie"] = "; ".join(part.split(";")[0] for part in login.headers.get_list("set-cookie"))
        browser.cookies.clear()
        yield browser


async def pages(browser: httpx.AsyncClient, rare: str) -> dict[str, float]:
    """Return what single pages take; few sessions have the word `rare`."""
    size = await first(browser)
    begun = time.perf_counter()
    await first(browser)
    first_ms = 1000 * (time.perf_counter() - begun)
    assert rare in await show(browser, "/sessions", q=rare)
    listed = await control.latency(browser, "/sessions", {})
    found = await control.latency(browser, "/sessions", {"q": rare})
    return {
        "first_bytes": float(size),
        "first_ms": round(first_ms, 1),
        "list_p95_ms": listed["p95_ms"],
        "search_p95_ms": found["p95_ms"],
    }


async def first(browser: httpx.AsyncClient) -> int:
    """Ask for the page after the login and all that it names; returns its bytes on the wire."""
    page = await show(browser, "/")
    size = len(page.encode())
    for path in dict.fromkeys(_ASSET.findall(page)):
        asset = await browser.get(path)
        asset.raise_for_status()
        size += len(gzip.compress(asset.content, EDGE_LEVEL))
    return size


async def show(browser: httpx.AsyncClient, address: str, **params: str) -> str:
    """Return a page."""
    answer = await browser.get(address, params=params)
    assert answer.status_code == 200, answer.text
    return answer.text


@contextmanager
def watching(browser: httpx.AsyncClient) -> Iterator[list[asyncio.Task[Any]]]:
    """Let browsers show the list, opened one after the other."""
    tasks = [asyncio.create_task(watch(browser, OPENED_S * number / BROWSERS)) for number in range(BROWSERS)]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def watch(browser: httpx.AsyncClient, delay_s: float) -> None:
    """Show the list for ever, as a browser does that was opened so much later than the first one."""
    await asyncio.sleep(delay_s)
    page = await show(browser, "/sessions")
    every_s = float(_POLL.findall(page)[0])
    while True:
        await asyncio.sleep(every_s)
        version = _VERSION.findall(page)[0]
        answer = await browser.get("/sessions", headers={"HX-Request": "true", SEEN_HEADER: version})
        assert answer.status_code in (200, 204), answer.text
        page = answer.text or page


async def change(database: Database) -> None:
    """Let a session change in each second."""
    while True:
        async with database.transaction() as db:
            await db.execute(text(_CHANGE))
        await asyncio.sleep(1)


if __name__ == "__main__":
    main()
