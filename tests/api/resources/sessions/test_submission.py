"""What a session may ask for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cluster import V1, Cluster, ok, refused, running_cluster
from tests.api.steps import body, delete, run

pytestmark = pytest.mark.anyio


async def test_what_the_agent_is_asked_for(ready: Cluster) -> None:
    session = await run(
        ready,
        gpu_milli=2500,
        interactive=True,
        command=["bash", "-c"],
        args=["echo $A"],
        environment={"A": "1"},
        pvcs=[{"name": "data", "target": "/data"}],
    )
    spec = ready.engine.specs[f"session-{session['id']}-0-0"]
    assert [(gpu.uuid, gpu.milli) for gpu in spec.gpus] == [
        ("GPU-worker1-0", 500),
        ("GPU-worker1-1", 1000),
        ("GPU-worker1-2", 1000),
    ]
    assert (spec.command, spec.args, spec.environment) == (["bash", "-c"], ["echo $A"], {"A": "1"})
    assert spec.image == "reservoir:5000/penstock/python:3.11"
    assert (spec.project, spec.user) == ("team-a", "admin")
    volume = await ok(ready.admin.get(f"{V1}/volumes/data", params={"project": "team-a"}))
    assert [(mount.source, mount.target) for mount in spec.mounts] == [(f"/srv/shared/{volume['id']}", "/data")]
    assert session["kind"] == "interactive"
    assert session["node"] == "worker1"
    assert [(gpu["index"], gpu["milli"]) for gpu in session["gpus"]] == [(0, 500), (1, 1000), (2, 1000)]
    node = await ok(ready.admin.get(f"{V1}/nodes/worker1"))
    assert [gpu["used_milli"] for gpu in node["gpus"]] == [500, 1000, 1000, 0]


async def test_apps_are_told_where_the_edge_offers_them(ready: Cluster) -> None:
    session = await run(ready, ports=[8888, 6006], environment={"A": "1"})
    assert ready.engine.specs[f"session-{session['id']}-0-0"].environment == {
        "A": "1",
        "PENSTOCK_APP_PATH": "/demo-6006/",
        "PENSTOCK_APP_PATH_6006": "/demo-6006/",
        "PENSTOCK_APP_PATH_8888": "/demo-8888/",
    }


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"gpu_milli": 0}, "cpu_milli", "how many CPUs"),
        ({"gpu_milli": -500}, "gpu_milli", "not above 0"),
        ({"gpu_milli": 25}, "gpu_milli", "finer than the granularity"),
        ({"gpu_milli": 17000}, "gpu_milli", "more than a container may hold"),
        ({"gpu_milli": 10**30}, "gpu_milli", "more than a container may hold"),
        (
            {"gpu_milli": 4050},
            "gpu_milli",
            "one container asks for 4.05 GPUs and the largest node that it may use has 4 GPUs",
        ),
        ({"gpu_milli": 0.5}, "gpu_milli", "whole number"),
        ({"gpu_milli": None}, "gpu_milli", "how many GPUs"),
        ({"name": "Demo"}, "name", "lower-case"),
        ({"name": "a" * 21}, "name", "20"),
        ({"project": "nobody"}, "project", "no project nobody"),
        ({"image": "rust"}, "image", "no image rust"),
        ({"image": ""}, "image", "is empty"),
        ({"command": []}, "command", "is empty"),
        ({"command": "bash"}, "command", "list"),
        ({"args": ["a\0"]}, "args[0]", "NUL"),
        ({"args": ["a" * 32_768] * 4}, "args", "longer than 128 KiB together, a byte more a word"),
        ({"command": ["\N{GRINNING FACE}" * 16_000] * 3, "args": ["a"]}, "command", "longer than 128 KiB together"),
        ({"environment": {f"A{n}": "a" * 1000 for n in range(131)}}, "environment", "longer than 128 KiB together"),
        ({"environment": {f"A{n}": "" for n in range(257)}}, "environment", "257 variables"),
        ({"environment": {"1A": "x"}}, "environment.1A", "is not written as it has to be"),
        ({"environment": {"A": 1}}, "environment.A", "not text"),
        ({"pvcs": [{"name": "data", "target": "data"}]}, "pvcs[0].target", "is not a folder"),
        ({"pvcs": [{"name": "data", "target": "/"}]}, "pvcs[0].target", "is not a folder"),
        ({"environment": {"PENSTOCK_RANK": "3"}}, "environment.PENSTOCK_RANK", "belong to Penstock"),
        ({"pvcs": [{"name": "..", "target": "/data"}]}, "pvcs[0].name", "lower-case"),
        ({"pvcs": [{"name": "data", "target": "/a/../b"}]}, "pvcs[0].target", "folders"),
        ({"pvcs": [{"name": "a", "target": "/x"}, {"name": "b", "target": "/x"}]}, "pvcs", "one target"),
        *(
            ({"pvcs": [{"name": "a", "target": target}]}, "pvcs[0].target", "belong to the container's system")
            for target in ("/usr", "/usr/sbin/docker-init", "/sbin/docker-init", "/etc/hosts", "/dev")
        ),
        ({"pvcs": [{"name": "a", "target": "/proc/x"}]}, "pvcs[0].target", "belong to the container's system"),
        (
            {"pvcs": [{"name": "a", "target": "/var/run/penstock/limits"}]},
            "pvcs[0].target",
            "belong to the container's system",
        ),
        ({"pvcs": [{"name": "a", "target": "/run"}]}, "pvcs[0].target", "belong to the container's system"),
        ({"volumes": [{"source": "/mnt", "target": "/dev"}]}, "volumes[0].target", "system"),
        ({"volumes": [{"source": "/mnt", "target": "/mnt"}]}, "volumes", "not open to sessions"),
        ({"volumes": [{"source": "/tmp/../etc", "target": "/a"}]}, "volumes[0].source", "folders"),
        ({"replicas": 21}, "replicas", "is more than 20"),
        ({"replicas": 0}, "replicas", "is less than 1"),
        ({"replicas": 20, "gpu_milli": 1000}, "gpu_milli", "20 containers are asked for"),
        ({"cpu_milli": 9000}, "cpu_milli", "9 CPUs"),
        ({"memory_mib": 1 << 20}, "memory_mib", "MiB of memory"),
        ({"cpu_milli": 9000, "memory_mib": 1 << 20}, "cpu_milli", "9 CPUs"),
        ({"cpu_milli": -1}, "cpu_milli", "is less than 0"),
        ({"memory_mib": 10**30}, "memory_mib", "is more than"),
        ({"shm_mib": 0}, "shm_mib", "is less than 1"),
        ({"shm_mib": 64, "large_shm": True}, "large_shm", "leave one of both out"),
        ({"kind": "training", "interactive": True}, "interactive", "leave one of both out"),
        ({"kind": "game"}, "kind", "'interactive'"),
        ({"preset": "huge"}, "preset", "no preset huge"),
        ({"gpu_models": ["H100"]}, "gpu_models", "H100"),
        ({"group": "nobody"}, "group", "no resource group nobody"),
        ({"within": "rack"}, "within", "'switch'"),
        ({"priority": 101}, "priority", "is more than 100"),
        ({"ports": [0]}, "ports[0]", "is less than 1"),
        ({"ports": [80, 80]}, "ports", "named twice"),
        ({"starts_at": "2026-01-01T00:00:00"}, "starts_at", "time zone"),
        ({"starts_at": "2020-01-01T00:00:00Z"}, "starts_at", "'2020-01-01T00:00:00+00:00' is past"),
        ({"image": "a b"}, "image", "without spaces"),
        ({"local_image": True, "image": "-rm"}, "image", "not the reference"),
        ({"count": 2}, "count", "unknown key"),
        ({"gpus": 1}, "gpus", "unknown key"),
    ],
)
async def test_bad_sessions_change_nothing(ready: Cluster, change: dict[str, Any], where: str, reason: str) -> None:
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500, **change}
    status = 404 if where == "project" else 422
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body), status)
    assert error["where"] == where
    assert reason in error["reason"]
    assert error["hint"]
    assert await ready.states() == {}


async def test_what_is_not_too_long_comes_to_its_containers(ready: Cluster) -> None:
    args, environment = ["a" * 32_767] * 3, {"A": "a" * 32_765}
    session = await run(ready, args=args, environment=environment)
    spec = ready.engine.specs[f"session-{session['id']}-0-0"]
    assert (spec.args, spec.environment) == (args, environment)


async def test_the_largest_possible_size_is_named(ready: Cluster) -> None:
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 8000}
    error = await refused(ready.admin.post(f"{V1}/sessions", json=body), 422)
    assert error["hint"] == "ask for at most that in a container"


async def test_the_images_that_exist_are_named(ready: Cluster) -> None:
    body = {"name": "demo", "project": "team-a", "image": "rust", "gpu_milli": 500}
    assert (await refused(ready.admin.post(f"{V1}/sessions", json=body), 422))["hint"].startswith(
        "choose one of python:3.11"
    )


async def test_volumes_need_shared_storage(database_url: str) -> None:
    async with running_cluster(database_url) as cluster:
        await cluster.add_image()
        await cluster.add_project()
        body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
        body |= {"pvcs": [{"name": "data", "target": "/data"}]}
        assert (await refused(cluster.admin.post(f"{V1}/sessions", json=body), 422))["where"] == "pvcs"


async def test_names_are_unique_while_a_session_lives(ready: Cluster) -> None:
    await run(ready)
    body = {"name": "demo", "project": "team-a", "image": "python", "gpu_milli": 500}
    assert "is RUNNING" in (await refused(ready.admin.post(f"{V1}/sessions", json=body), 409))["reason"]
    await ready.add_project("team-b", 1000)
    await ready.submit("demo", project="team-b")
    await delete(ready)
    await ready.settle()
    again = await ready.submit("demo")
    assert (await ready.session("demo"))["id"] == again["id"], "the live one is meant"


async def test_what_a_name_and_a_folder_may_be_is_a_hint(ready: Cluster) -> None:
    for change, hint in (
        ({"name": "a" * 21}, "lower-case letters, digits and hyphens, 20 at most"),
        ({"name": "Demo"}, "lower-case letters, digits and hyphens, 20 at most"),
        ({"pvcs": [{"name": "data", "target": "relative"}]}, "write a path such as /data"),
    ):
        error = await refused(ready.admin.post(f"{V1}/sessions", json=body(**change)), 422)
        assert hint in error["hint"]


async def test_so_many_sessions_of_one_person_wait_and_no_more(ready: Cluster) -> None:
    ready.app.state.settings = ready.settings.model_copy(update={"waiting_per_user": 3})
    await ok(ready.admin.post(f"{V1}/sessions/batch", json=body("job", count=3)))
    told = await refused(ready.admin.post(f"{V1}/sessions", json=body("more")), 409)
    assert told["reason"] == "4 of your sessions would wait, and at most 3 may"
    await ready.settle()
    assert set((await ready.states()).values()) == {"RUNNING"}
    await ok(ready.admin.post(f"{V1}/sessions", json=body("more")))
