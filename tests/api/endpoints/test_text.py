"""What UTF-8 cannot encode is refused wherever text may stand: it could be neither stored nor told to anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from common.places import pointer
from common.repair_protocol import CONTROLLER, CONTROLLER_PATH
from tests.api.cluster import V1, Cluster, problems, running_cluster
from tests.api.endpoints.routes import Route, routes_of

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
AGENT = {"X-Client-Verify": "SUCCESS", "X-Client-Name": "worker1"}
OF_THE_CONTROLLER = {"X-Client-Verify": "SUCCESS", "X-Client-Name": CONTROLLER}
HALF = "a\\ud800"
"""As it is written in JSON: the first half of a surrogate pair, and no second one."""

Path = tuple[int | str, ...]

LENIENT: set[Path] = {
    ("node_info", "enforcement"),
    ("node_info", "gpus", 0, "enforcement"),
    ("containers", 0, "enforcement"),
    ("containers", 0, "status"),
    ("images", 0, "status"),
    ("nodes", 0, "checks", 0, "state"),
    *(("containers", 0, "nccl", name) for name in ("version", "p2p_line", "ib_line", "gdrdma_line")),
    *(("node_info", "hcas", 0, name) for name in ("name", "link_layer", "state")),
    ("node_info", "interfaces", 0, "name"),
    *(("commands", 0, name) for name in ("command", "object", "by", "reason")),
    ("runs", 0, "state"),
    *(("runs", 0, name) for name in ("by", "limit", "reason")),
    *(("runs", 0, name, 0) for name in ("tried", "sick")),
    *(("runs", 0, "steps", 0, name) for name in ("node", "rung", "evidence")),
    ("runs", 0, "steps", 0, "tasks", 0),
    ("backups", 0, "problem"),
    ("backup_orders", 0, "reason"),
    ("backup_orders", 0, "state"),
}
"""Words of agents that a later release may add to, of which one that is not known is read as what promises least; and
what a program or a driver wrote, whose signs are replaced by ones that every terminal shows.
"""


def strings(schema: dict[str, Any], definitions: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    """Yield where a body of a schema may have text: fields, items, values and keys of objects."""
    if "$ref" in schema:
        yield from strings(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions, path)
    for one in schema.get("anyOf", ()):
        yield from strings(one, definitions, path)
    match schema.get("type"):
        case "string":
            yield path
        case "array":
            yield from strings(schema["items"], definitions, (*path, 0))
        case "object":
            for name, field in schema.get("properties", {}).items():
                yield from strings(field, definitions, (*path, name))
            inner = [*schema.get("patternProperties", {}).values()]
            if isinstance(schema.get("additionalProperties"), dict):
                inner.append(schema["additionalProperties"])
            for value in inner:
                yield from strings(value, definitions, (*path, "A"))
                yield (*path, HALF)


def body_with(path: Path) -> str:
    """Return a JSON text that has what is no text at a path, as a value or as a key."""
    text = "1" if path[-1] == HALF else f'"{HALF}"'
    for part in reversed(path):
        text = f"[{text}]" if isinstance(part, int) else f'{{"{part}": {text}}}'
    return text


def bodies_of(cluster: Cluster) -> Iterator[tuple[Route, Path]]:
    """Yield each route, and each place of its body where text may stand."""
    document = cluster.app.openapi()
    for route in routes_of(cluster.app):
        described = document["paths"].get(route.path, {}).get(route.method.lower(), {})
        if content := described.get("requestBody", {}).get("content"):
            for path in strings(content["application/json"]["schema"], document["components"]["schemas"]):
                yield route, path


@pytest.fixture
async def ordering(database_url: str) -> AsyncIterator[Cluster]:
    """A cluster whose controller may report."""
    async with running_cluster(database_url, controller=True) as running:
        yield running


async def test_no_field_of_any_body_takes_half_a_surrogate_pair(ordering: Cluster) -> None:
    cluster = ordering
    # a check of a node that cannot be read is left out, and the others count
    found = [(route, path) for route, path in bodies_of(cluster) if path not in LENIENT and path[0] != "checks"]
    assert len(found) > 100
    assert {path for route, path in found if route.path == f"{V1}/sessions"} >= {
        ("args", 0),
        ("environment", "A"),
        ("environment", HALF),
        ("volumes", 0, "target"),
    }
    taken = []
    async with cluster.client(**AGENT) as agent, cluster.client(**OF_THE_CONTROLLER) as controller:
        for route, path in found:
            of_nodes = controller if route.path == CONTROLLER_PATH else agent
            client = of_nodes if route.path.startswith("/agent/") else cluster.admin
            content = body_with(path).encode()
            response = await client.request(route.method, route.filled, content=content, headers=JSON)
            # a key that is wrong is written in another way, for it cannot be told as it is
            place = pointer(path[:-1]) + "/a" if path[-1] == HALF else pointer(path)
            told = response.json().get("errors", []) if response.status_code == 422 else []
            # parameters of the path may be wrong beside it
            wrong = [error["pointer"] for error in told if "pointer" in error and error["detail"] != "this is required"]
            if not any(one.startswith(place) for one in wrong):
                taken.append(f"{route} {path}: {response.status_code} {told}")
    assert [line[:100] for line in taken] == []


@pytest.mark.parametrize(
    "content", [b'{"a\\ud800": 1}', b'{"name": "\\udc00"}', b'{"name": "\xed\xa0\x80"}', b'"\\ud800"']
)
async def test_what_cannot_be_told_as_it_is_is_told_in_other_words(cluster: Cluster, content: bytes) -> None:
    """As an escape, or as the bytes that some programs write for it."""
    response = await cluster.admin.post(f"{V1}/projects", content=content, headers=JSON)
    assert response.status_code == 422
    assert problems(response)


async def test_a_whole_pair_is_text(cluster: Cluster) -> None:
    await cluster.add_image()
    await cluster.add_project()
    session = await cluster.submit("demo", args=["\N{GRINNING FACE}"], environment={"A": "\N{GRINNING FACE}"})
    assert session["args"] == ["\N{GRINNING FACE}"]


async def test_no_parameter_takes_bytes_that_are_no_text(cluster: Cluster) -> None:
    document = cluster.app.openapi()
    asked = 0
    for route in routes_of(cluster.app):
        parameters = document["paths"].get(route.path, {}).get(route.method.lower(), {}).get("parameters", [])
        for parameter in (one for one in parameters if one["in"] != "header"):
            half = "%ED%A0%80"
            if parameter["in"] == "path":
                path = route.path.replace(f"{{{parameter['name']}}}", half)
                url = Route(route.method, path).filled
            else:
                url = f"{route.filled}?{parameter['name']}={half}"
            response = await cluster.admin.request(route.method, url, json={} if route.method != "GET" else None)
            assert 400 <= response.status_code < 500, f"{route.method} {url}: {response.status_code}"
            asked += 1
    assert asked > 50
