"""The control API alone, for developers: `python -m tools.api_dev [PORT]`, until Ctrl-C.

Its PostgreSQL, and the nodes and containers that it speaks of, are gone when it ends.
"""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import suppress
from typing import Any

import httpx

from api.console.app import add_console
from api.endpoints.server import serve
from api.settings import Settings
from common.protocol import HEARTBEAT_PATH
from tests.fakes.engine import FakeEngine
from tests.fakes.heartbeats import beat
from tests.installed import ADMIN_KEY, PASSWORD, InstalledDatabase
from tests.postgresql import running_server

NODES = ("worker1", "worker2")
GPUS = 4
HEARTBEAT_S = 2.0
CREATED: dict[str, dict[str, Any]] = {
    "images": {"name": "python", "tag": "3.11", "reference": "reservoir:5000/penstock/python:3.11"},
    "projects": {"name": "team-a", "quota_milli": 4000, "period": {"ends_at": None}},
}


def main() -> None:
    """Serve on loopback, with an administrator, nodes, an image and a project."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 56789
    with running_server() as folder:
        database = InstalledDatabase(folder)
        settings = Settings(
            database_url=database.fresh(), port=port, trust_client_headers=True, registries=("reservoir:5000",)
        )
        database.close()
        engine = FakeEngine()
        threading.Thread(target=_fill, args=(engine, f"http://127.0.0.1:{port}", settings), daemon=True).start()
        with suppress(KeyboardInterrupt):
            serve(settings, engine, pages=add_console)


def _fill(engine: FakeEngine, url: str, settings: Settings) -> None:
    """Report for the nodes for as long as the API lives, and tell how to come in as soon as it answers."""
    transport = httpx.HTTPTransport(retries=10)
    with httpx.Client(base_url=url, transport=transport) as client:
        for path, body in CREATED.items():
            key = {"Authorization": f"Bearer {ADMIN_KEY}"}
            client.post(f"/api/v1/{path}", json=body, headers=key).raise_for_status()
        _greet(url, settings)
        for sequence in itertools.count(1):
            for name in NODES:
                containers = [state for (node, _), state in list(engine.containers.items()) if node == name]
                report = beat(sequence, name=name, gpus=GPUS, containers=containers)
                headers = {"X-Client-Verify": "SUCCESS", "X-Client-Name": name}
                client.post(HEARTBEAT_PATH, json=report.model_dump(mode="json"), headers=headers)
            threading.Event().wait(HEARTBEAT_S)


def _greet(url: str, settings: Settings) -> None:
    print(
        f"""
console    {url}
API        {url}    description: {url}/docs
login      admin / {PASSWORD}
key        {ADMIN_KEY}
CLI        penstock login {url} --user admin
database   {settings.database_url}
""",
        flush=True,
    )


if __name__ == "__main__":
    main()
