"""InfiniBand of a node, on trees of files as the kernel's documents have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.agent.docker.rdma import MissingRdmaError, Rdma, bus_name
from common.protocol import NodeInfo
from common.rdma import Hca
from tests.fakes.heartbeats import node_info

pytestmark = pytest.mark.anyio

BUSES = {0: "00000000:1C:00.0", 1: "00000000:9D:00.0"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def machine(root: Path) -> None:
    """Two sockets, whose NUMA nodes are 0 and 2, with a GPU at each."""
    for node, distance in ((0, "10 21"), (2, "21 10")):
        write(root / f"sys/devices/system/node/node{node}/distance", distance)
    for bus, node in (("0000:1c:00.0", 0), ("0000:9d:00.0", 2)):
        write(root / "sys/bus/pci/devices" / bus / "numa_node", str(node))


def plug(
    root: Path,
    name: str = "mlx5_0",
    rate: str = "100 Gb/sec (4X EDR)",
    link_layer: str = "InfiniBand",
    state: str = "4: ACTIVE",
    numa: int = 0,
    verbs: int | None = 0,
) -> None:
    """Plug an HCA with one port in."""
    device = root / "sys/class/infiniband" / name
    for file, text in (("rate", rate), ("link_layer", link_layer), ("state", state), ("phys_state", "5: LinkUp")):
        write(device / "ports/1" / file, text)
    write(device / "device/numa_node", str(numa))
    write(device / f"device/infiniband_verbs/uverbs{verbs or 0}/ibdev", name)
    write(root / "dev/infiniband/rdma_cm", "")
    if verbs is not None:
        write(root / f"dev/infiniband/uverbs{verbs}", "")


def rdma(
    root: Path, *wanted: str, address: str = "10.72.0.11", memlock: int = -1, buses: Mapping[int, str] = BUSES
) -> Rdma:
    return Rdma(address, wanted, buses, memlock, root)


@pytest.mark.parametrize(
    ("rate", "fit"), [("40 Gb/sec (4X QDR)", True), ("10 Gb/sec (4X SDR)", False), ("2.5 Gb/sec", False)]
)
def test_what_is_fast_enough_is_rdma(tmp_path: Path, rate: str, fit: bool) -> None:
    plug(tmp_path, rate=rate)
    found = rdma(tmp_path)
    assert found.hcas[0].rate_gbps == float(rate.split(maxsplit=1)[0])
    assert bool(found.missing) is not fit
    assert fit or "of at least 40 Gb/s" in found.missing


def test_an_hca_and_how_far_the_gpus_are(tmp_path: Path) -> None:
    machine(tmp_path)
    plug(tmp_path, numa=2)
    (found,) = rdma(tmp_path).hcas
    assert found == Hca(
        name="mlx5_0:1",
        rate_gbps=100,
        link_layer="InfiniBand",
        state="ACTIVE",
        numa_node=2,
        distances={0: 21, 1: 10},
    )


def test_a_machine_that_does_not_say_where_things_are(tmp_path: Path) -> None:
    plug(tmp_path, numa=-1)
    (found,) = rdma(tmp_path).hcas
    assert (found.numa_node, found.distances) == (None, {})
    machine(tmp_path)
    plug(tmp_path, numa=0)
    (found,) = rdma(tmp_path, buses={0: BUSES[0], 1: "0000:ff:00.0"}).hcas
    assert found.distances == {0: 10}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"link_layer": "Ethernet"}, "no port of it is fit (mlx5_0:1 is Ethernet, not InfiniBand)"),
        ({"state": "1: DOWN"}, "no port of it is fit (mlx5_0:1 is DOWN)"),
        ({"state": "2: INIT"}, "no port of it is fit (mlx5_0:1 is INIT)"),
        ({"rate": "odd"}, "no port of it is fit (mlx5_0:1 has 0 of at least 40 Gb/s)"),
        ({"verbs": None}, "mlx5_0:1 has no device below /dev/infiniband: the module ib_uverbs is not loaded"),
    ],
)
def test_what_sessions_cannot_use_is_said(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    plug(tmp_path, **change)  # type: ignore[arg-type]
    found = rdma(tmp_path)
    assert found.missing == reason
    with pytest.raises(MissingRdmaError, match="this node has no RDMA"):
        found.needs()


def test_a_node_without_hardware_or_without_an_address(tmp_path: Path) -> None:
    assert rdma(tmp_path).missing == "it has no InfiniBand HCA"
    plug(tmp_path)
    assert rdma(tmp_path, address="").missing == "ib_address is not set for it in the site file"
    assert rdma(tmp_path, memlock=65536).missing == "its sessions may lock no more than 65536 bytes of memory"


def test_the_devices_and_the_names_that_nccl_gets(tmp_path: Path) -> None:
    for number, name in enumerate(("mlx5_0", "mlx5_1", "mlx5_10")):
        plug(tmp_path, name, verbs=number)
    plug(tmp_path, "mlx5_2", link_layer="Ethernet", verbs=3)
    needs = rdma(tmp_path).needs()
    assert needs.environment == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1,mlx5_10:1"}
    folder = "/dev/infiniband"
    assert needs.devices == (*(f"{folder}/uverbs{number}" for number in range(3)), f"{folder}/rdma_cm")


def test_the_site_chooses_among_the_hcas(tmp_path: Path) -> None:
    for number, name in enumerate(("mlx5_0", "mlx5_1")):
        plug(tmp_path, name, verbs=number)
    for wanted in ("mlx5_1", "mlx5_1:1"):
        needs = rdma(tmp_path, wanted).needs()
        assert needs.environment == {"NCCL_IB_HCA": "=mlx5_1:1"}
        assert needs.devices == ("/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm")
    assert rdma(tmp_path, "mlx4_0").missing == "it has none of the HCAs that the site file names: mlx4_0"


async def test_a_pulled_cable_is_told_once(tmp_path: Path) -> None:
    plug(tmp_path)
    found = rdma(tmp_path)
    told: list[str] = []
    await found.look(lambda: told.append("early"))
    plug(tmp_path, state="1: DOWN")
    for _ in range(2):
        await found.look(lambda: told.append(found.missing))
    assert told == ["no port of it is fit (mlx5_0:1 is DOWN)"]


def test_what_is_found_can_be_told(tmp_path: Path) -> None:
    machine(tmp_path)
    plug(tmp_path, "x" * 80, link_layer="é" * 90, state="4: \x1b[2J")
    told = node_info("worker1", 2).model_copy(update={"hcas": rdma(tmp_path).hcas})
    assert NodeInfo.model_validate_json(told.written()).hcas == told.hcas
    assert (told.hcas[0].link_layer, told.hcas[0].state) == ("?" * 64, "?[2J")


@pytest.mark.parametrize("bus", ["00000000:1C:00.0", "0000:1c:00.0", "0:1C:00.0"])
def test_where_the_kernel_has_a_gpu(bus: str) -> None:
    assert bus_name(bus) == "0000:1c:00.0"
