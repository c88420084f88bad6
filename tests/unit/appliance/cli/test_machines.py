"""The commands of nodes, images, presets and the scheduler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.cli.node import BELOW, HEAD
from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import gpu, image, node, preset, waiting


def test_a_node_shows_its_hcas_and_why_sessions_cannot_use_them(logged_in: FakeApi, run: Run) -> None:
    port = {"name": "mlx5_0:1", "rate_gbps": 100.0, "link_layer": "InfiniBand", "state": "ACTIVE", "numa_node": 2}
    down = {**port, "name": "mlx5_1:1", "rate_gbps": 2.5, "state": "DOWN", "numa_node": None, "distances": {}}
    reason = "ib_address is not set for it in the site file"
    hcas = [{**port, "distances": {"10": 21, "2": 10}}, down]
    logged_in.on("GET", "/nodes/worker1", node(hcas=hcas, no_rdma=reason))
    lines = run("node", "get", "worker1")[1].splitlines()
    assert any(line.split(maxsplit=1) == ["RDMA:", f"no: {reason}"] for line in lines)
    words = [line.split() for line in lines if line.startswith("mlx5")]
    assert words == [
        ["mlx5_0:1", "100", "Gb/s", "InfiniBand", "ACTIVE", "2", "2:", "10,", "10:", "21"],
        ["mlx5_1:1", "2.5", "Gb/s", "InfiniBand", "DOWN", "-", "-"],
    ]


def test_nodes_golden(logged_in: FakeApi, run: Run) -> None:
    bare = node(
        name="worker2",
        state="lost",
        mode="draining",
        gpus=[],
        last_seen=None,
        cpu_milli=16000,
        message="no word from its agent for 20 s",
        region="",
        groups=[],
        fractions=False,
        used_milli=0,
        driver_version="",
        cuda_version="",
        endpoint="tcp://10.0.0.3:6001",
        nvlink=True,
        rdma=True,
    )
    logged_in.on("GET", "/nodes", [node(), bare])
    lines = run("node", "list")[1].splitlines()
    assert [line.split() for line in lines[:1]] == [" ".join(HEAD).split()]
    assert lines[1].split("  ")[0] == "worker1"
    assert "Lab GPU (simulated)" in lines[1]
    assert " ".join(lines[1].split()) == (
        "worker1 Ready tcp://10.0.0.2:6001 room-1 - 2.5 23.5G 2 1.25"
        " Lab GPU (simulated) v100 0.1.0 615.1 13.0 on none - - 3h"
    )
    assert " ".join(lines[2].split()) == (
        "worker2 Error, draining tcp://10.0.0.3:6001 - - 16 23.5G 0 0 - - 0.1.0 - - off none yes yes never"
    )
    assert lines[3] == "worker2: no word from its agent for 20 s"
    assert json.loads(run("node", "list", "-o", "json")[1]) == [node(), bare]
    assert set(BELOW) < set(HEAD)


def test_nodes_are_chosen_by_state_mode_and_group(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes", [])
    assert run("node", "list", "--state", "lost", "--mode", "active", "--group", "v100")[0] == 0
    assert logged_in.last.query == {"state": "lost", "mode": "active", "group": "v100", "limit": "1000"}


def test_nodes_that_take_nothing_new_are_listed_with_why(logged_in: FakeApi, run: Run) -> None:
    listed = [node(), node(name="worker2", withheld="Slurm: drained (fans)"), node(name="worker3", unhealthy="disk /")]
    logged_in.on("GET", "/nodes", listed)
    assert run("node", "list")[1].splitlines()[-2:] == [
        "worker2: takes nothing new: Slurm: drained (fans)",
        "worker3: unhealthy, takes nothing new: disk /; see `penstock doctor`",
    ]


def test_node_get_shows_each_gpu_and_how_shares_are_held(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes/worker1", node(message="its clock is wrong"))
    out = run("node", "get", "worker1")[1]
    assert "Message:         its clock is wrong\n" in out
    assert "Orphaned" not in out
    assert "Enforcement:     none\n" in out
    assert out.endswith(
        "\nGPU  UUID   MODEL                MEMORY     ENFORCEMENT  IN USE\n"
        "0    SIM-1  Lab GPU (simulated)  16384 MiB  none         1\n"
        "1    SIM-2  Lab GPU (simulated)  16384 MiB  none         0.25\n"
    )


def test_node_get_shows_what_orphaned_containers_hold(logged_in: FakeApi, run: Run) -> None:
    held = {"SIM-2": 500, "SIM-gone": 1000}
    logged_in.on("GET", "/nodes/worker1", node(orphaned_milli=held))
    assert "Orphaned GPUs:   0.5 of GPU 1, 1 of GPU SIM-gone\n" in run("node", "get", "worker1")[1]


def test_node_get_shows_slices_and_what_a_change_of_kinds_waits_for(logged_in: FakeApi, run: Run) -> None:
    sliced = gpu(
        uuid="MIG-1",
        model="A100",
        enforcement="mig",
        parent="GPU-7",
        profile="2g.10gb",
        capacity_milli=285,
        used_milli=285,
        memory_mib=9856,
        simulated=False,
    )
    pending = "shim, when the 2 containers under none have ended"
    logged_in.on("GET", "/nodes/worker1", node(gpus=[gpu(), sliced], enforcement="none", enforcement_pending=pending))
    out = run("node", "get", "worker1")[1]
    assert f"Pending:         {pending}\n" in out
    assert out.endswith(
        "\nGPU  UUID   MODEL                MEMORY     ENFORCEMENT  IN USE          SLICE\n"
        "0    SIM-1  Lab GPU (simulated)  16384 MiB  none         0\n"
        "0    MIG-1  A100                 9856 MiB   mig          0.285 of 0.285  2g.10gb of GPU-7\n"
    )


@pytest.mark.parametrize(
    ("command", "body", "said"),
    [
        (("maintenance",), {"mode": "maintenance"}, "worker1: Ready, maintenance\n"),
        (("drain",), {"mode": "draining"}, "worker1: Ready, draining\n"),
        (("drain", "--timeout", "5m"), {"mode": "draining", "drain_timeout_s": 300}, "worker1: Ready, draining\n"),
        (("activate",), {"mode": "active"}, "worker1: Ready\n"),
    ],
)
def test_modes_of_a_node(
    logged_in: FakeApi, run: Run, command: tuple[str, ...], body: dict[str, object], said: str
) -> None:
    logged_in.on("PATCH", "/nodes/worker1/mode", node(mode=body["mode"]))
    assert run("node", command[0], "worker1", *command[1:])[1] == said
    assert logged_in.last.body == body


FAST = {"name": "eth2", "addresses": ["10.1.0.2"], "up": True, "speed_mbps": 100000, "mtu": 9000}
PLAIN = {"name": "eth0", "addresses": [], "up": False, "speed_mbps": None, "mtu": 1500}


@pytest.mark.parametrize(
    ("words", "chosen", "interfaces", "said"),
    [
        (("eth2",), "eth2", [FAST], "worker1: sessions meet by eth2 (10.1.0.2)\n"),
        (("--default",), "", [FAST], "worker1: sessions meet by 10.0.0.2\n"),
        (("eth0",), "eth0", [PLAIN], "worker1: eth0 has no address now: sessions meet by 10.0.0.2\n"),
    ],
)
def test_the_interface_by_which_sessions_meet_is_chosen(
    logged_in: FakeApi, run: Run, words: tuple[str, ...], chosen: str, interfaces: list[object], said: str
) -> None:
    logged_in.on("PATCH", "/nodes/worker1", node(interface=chosen, interfaces=interfaces))
    assert run("node", "interface", "worker1", *words)[1] == said
    assert logged_in.last.body == {"interface": chosen}


@pytest.mark.parametrize("words", [(), ("eth2", "--default")])
def test_an_interface_or_the_default_is_named(logged_in: FakeApi, run: Run, words: tuple[str, ...]) -> None:
    code, _, told = run("node", "interface", "worker1", *words)
    assert code != 0
    assert "either an interface or --default" in told


def test_a_node_shows_its_interfaces(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes/worker1", node(interface="eth2", interfaces=[PLAIN, FAST]))
    lines = run("node", "get", "worker1")[1].splitlines()
    assert any(line.split(maxsplit=1) == ["Interface:", "sessions meet by eth2 (10.1.0.2)"] for line in lines)
    assert [line.split() for line in lines if line.startswith("eth")] == [
        ["eth0", "-", "down", "-", "1500"],
        ["eth2", "10.1.0.2", "up", "100000", "Mbit/s", "9000"],
    ]


def test_a_node_is_deleted(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes/worker1", node(sessions=0))
    logged_in.on("GET", "/resource-groups", [])
    logged_in.on("DELETE", "/nodes/worker1", {"done": True})
    assert run("node", "delete", "worker1")[1] == "Deleted node worker1.\n"
    logged_in.on("DELETE", "/nodes/worker1/unknown-containers", {"done": True})
    assert run("node", "end-unknown", "worker1")[0] == 0


def test_who_deletes_a_node_with_sessions_is_told_what_ends_and_asked(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/nodes/worker1", node(sessions=2, state="lost"))
    logged_in.on("GET", "/resource-groups", [{"name": "v100", "nodes": ["worker1"]}, {"name": "a100", "nodes": []}])
    for answer in ("n\n", ""):
        code, out, err = run("node", "delete", "worker1", stdin=answer)
        assert (code, out.strip()) == (1, "")
        assert "worker1 has live sessions: 2" in err
        assert "interactive sessions and services end" in err
        assert logged_in.last.method == "GET"
    logged_in.on("DELETE", "/nodes/worker1", {"done": True})
    said = "Deleted node worker1. Should it report again, it is a new node: v100 does not name it any more."
    for words, answer in ((("--yes",), ""), ((), "y\n")):
        code, out, _ = run("node", "delete", "worker1", *words, stdin=answer)
        assert (code, out.strip()) == (0, said)


def test_images(logged_in: FakeApi, run: Run) -> None:
    failed = image(
        tag="3.13", visibility="projects", projects=["team-a"], status="failed", error="no such tag", reference="x"
    )
    logged_in.on("GET", "/images", [image(), failed])
    assert run("image", "list", "-p", "team-a")[1] == (
        "IMAGE        FOR           STATUS  REFERENCE                            CREATED\n"
        "python:3.11  all projects  Ready   reservoir:5000/penstock/python:3.11  3h\n"
        "python:3.13  team-a        Failed  x                                    3h\n"
        "python:3.13 failed: no such tag\n"
    )
    assert logged_in.last.query == {"project": "team-a"}
    logged_in.on("POST", "/images", image(), status=201)
    assert run("image", "create", "python:3.11", "x:1")[1] == "Registered python:3.11 for all projects.\n"
    assert logged_in.last.body == {"name": "python", "tag": "3.11", "reference": "x:1"}
    assert run("image", "create", "python:3.11", "x:1", "-p", "team-a", "--description", "d")[0] == 0
    assert logged_in.last.body["projects"] == ["team-a"]
    logged_in.on("POST", "/images/python:3.11/check", image(status="unchecked"), status=202)
    assert run("image", "check", "python:3.11")[1] == "python:3.11: unchecked\n"
    logged_in.on("DELETE", "/images/python:3.11", {"done": True})
    assert run("image", "delete", "python:3.11", "-p", "team-a")[1] == "Deleted python:3.11.\n"
    assert logged_in.last.query == {"project": "team-a"}


@pytest.mark.parametrize("name", ["python", "python:", ":3.11"])
def test_image_without_name_or_tag(logged_in: FakeApi, run: Run, name: str) -> None:
    code, _, err = run("image", "delete", name)
    assert code == 2
    assert "is not a name with a tag" in err
    assert not logged_in.calls


def test_presets(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/presets", [preset(), preset(name="large-gpu", cpu_milli=4000, gpu_milli=2000)])
    assert run("preset", "list")[1] == (
        "NAME       CPUs  MEMORY  SHM   GPUs  DESCRIPTION\n"
        "small      1     4.0G    0.1G  0\n"
        "large-gpu  4     4.0G    0.1G  2\n"
    )
    logged_in.on("POST", "/presets", preset(), status=201)
    assert run("preset", "create", "small", "--cpu", "1", "--memory", "4G", "--shm", "64M", "-g", "0")[0] == 0
    assert logged_in.last.body == {
        "name": "small",
        "cpu_milli": 1000,
        "memory_mib": 4096,
        "shm_mib": 64,
        "gpu_milli": 0,
    }
    logged_in.on("PATCH", "/presets/small", preset())
    assert run("preset", "update", "small", "--memory", "2G")[0] == 0
    assert logged_in.last.body == {"memory_mib": 2048}
    logged_in.on("GET", "/presets/small", preset())
    assert "Shared memory: 64 MiB\n" in run("preset", "get", "small")[1]
    logged_in.on("DELETE", "/presets/small", {"done": True})
    assert run("preset", "delete", "small")[1] == "Deleted preset small.\n"


def test_the_queue_of_the_site_and_the_last_cycle(logged_in: FakeApi, run: Run, tmp_path: Path) -> None:
    logged_in.on("GET", "/scheduler/queue", [waiting(reason="no node has 2 free GPUs")])
    assert "no node has 2 free GPUs" in run("queue", "--site")[1]
    assert run("queue", "--site", "-p", "team-a")[0] == 2
    logged_in.on("GET", "/scheduler/cycle", b'{"sessions": []}')
    assert run("scheduler", "save", str(tmp_path / "cycle.json"))[0] == 0
    assert (tmp_path / "cycle.json").read_bytes() == b'{"sessions": []}'
