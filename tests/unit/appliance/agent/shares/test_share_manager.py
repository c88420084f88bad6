"""GPU shares of a node: how they are held, how they change, and what is left of containers that have gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.agent.shares.share_manager import ShareManager
from appliance.gpu.devices import DeviceShare, Gpus, Needs
from appliance.gpu.enforcement import AccountedOnly, Probe
from appliance.gpu.mig import Mig
from appliance.gpu.mps import Mps
from appliance.gpu.telemetry import Telemetry
from common.errors import ConflictError, InputError, UnavailableError
from common.gpu.kinds import Compute, Enforcement
from common.gpu.share import GpuShare
from common.protocol import ContainerState, ContainerStatus, GpuDevice, NodeInfo
from tests.unit.appliance.gpu.samples import GPU, SECOND, SIMULATED, SLICE

ALL = tuple(Enforcement)
BARE = NodeInfo(name="n", agent_version="1", engine_version="1", os="o", cpu_milli=1, memory_mib=1)


class Accelerated:
    """An accelerator whose devices a test lists elsewhere."""

    def __init__(self, name: str, kinds: Sequence[Enforcement] = ALL) -> None:
        self.name = name
        self.kinds = frozenset(kinds)

    def discover(self) -> Gpus:
        return Gpus()

    def needs(self, devices: Sequence[GpuDevice]) -> Needs:
        return Needs(nvidia=tuple(device.uuid for device in devices))


class Holder(AccountedOnly):
    """A kind that writes down what it is told."""

    def __init__(self, kind: Enforcement, available: bool = True) -> None:
        super().__init__(kind)
        self.available = available
        self.applied: list[tuple[str, list[int]]] = []
        self.removed: list[str] = []
        self.refuses = False

    def probe(self, devices: Sequence[GpuDevice]) -> Probe:
        return Probe(self.available, "")

    def needs(self, container: str, shares: Sequence[DeviceShare]) -> Needs:
        return Needs(environment={f"BY_{self.kind}": ",".join(share.device.uuid for share in shares)})

    def apply(self, container: str, shares: Sequence[DeviceShare], pid: int) -> None:
        if self.refuses:
            raise UnavailableError("no")
        self.applied.append((container, [share.milli for share in shares]))

    def remove(self, container: str) -> None:
        self.removed.append(container)
        if self.refuses:
            raise OSError("no")


class Node:
    """Shares of a node where the shim is available, and neither the driver's limits nor the multi-process service are.

    `asked` is what was asked of systemd for that service's daemons.
    """

    def __init__(self, folder: Path, *devices: GpuDevice, order: Sequence[Enforcement] = ALL) -> None:
        self.shim = Holder(Enforcement.SHIM)
        self.asked: list[tuple[str, str]] = []
        self._pipes = folder.with_name(f"{folder.name}-mps")
        service = Mps(Telemetry(), self._pipes, Compute.FAIR, control=folder / "none", systemctl=self._ask)
        enforcers = {
            Enforcement.DRIVER: Holder(Enforcement.DRIVER, available=False),
            Enforcement.MIG: Mig(),
            Enforcement.SHIM: self.shim,
            Enforcement.MPS: service,
            Enforcement.NONE: AccountedOnly(),
        }
        kinds = [Accelerated("nvidia"), Accelerated("simulated", [Enforcement.NONE])]
        self.shares = ShareManager(Gpus(list(devices)), kinds, enforcers, order, folder)

    def run(self, identity: str, *gpu_shares: GpuShare) -> ContainerState:
        """Let a container run with these shares, and return its state as Docker's label tells it."""
        self.shares.check(gpu_shares)
        self.shares.prepare(identity, gpu_shares)
        self.shares.attach(identity, f"engine-{identity}", 1)
        return state(identity, *gpu_shares)

    def leave_daemons(self, *devices: GpuDevice) -> None:
        """Let the daemons of devices run, as an agent before may have left them."""
        for device in devices:
            pipe = self._pipes / device.uuid / "pipe"
            pipe.mkdir(parents=True)
            (pipe / "control").touch()

    def _ask(self, verb: str, unit: str) -> bool:
        self.asked.append((verb, unit))
        return True


def stops(*devices: GpuDevice) -> list[tuple[str, str]]:
    """What is asked of systemd to end the daemons of devices."""
    return [("stop", f"penstock-mps@{device.uuid}.service") for device in devices]


def gpu_share(device: GpuDevice, milli: int) -> GpuShare:
    return GpuShare(uuid=device.uuid, index=device.index, milli=milli)


def state(
    identity: str, *gpu_shares: GpuShare, status: ContainerStatus = ContainerStatus.RUNNING, error: str = ""
) -> ContainerState:
    return ContainerState(id=identity, session_id="s", status=status, gpus=list(gpu_shares), error=error)


def test_each_device_says_how_its_shares_are_held_and_the_node_is_as_weak_as_its_weakest(tmp_path: Path) -> None:
    found = Node(tmp_path, GPU, SLICE).shares.describe(BARE)
    assert [device.enforcement for device in found.gpus] == [Enforcement.SHIM, Enforcement.MIG]
    assert (found.enforcement, found.fractions, found.enforcement_pending) == (Enforcement.SHIM, True, "")
    simulated = Node(tmp_path, SIMULATED).shares.describe(BARE)
    assert (simulated.enforcement, simulated.fractions) == (Enforcement.NONE, True)


def test_gpus_that_nothing_holds_are_given_whole_or_not_at_all(tmp_path: Path) -> None:
    shares = Node(tmp_path, GPU, SLICE, order=[Enforcement.DRIVER]).shares
    assert not shares.describe(BARE).fractions
    shares.check([gpu_share(GPU, 1000), gpu_share(SLICE, 250)])
    with pytest.raises(InputError, match="GPU-1 cannot be shared") as caught:
        shares.check([gpu_share(GPU, 500)])
    assert caught.value.problems[0].where == "gpus.0.milli"


def test_simulated_gpus_are_shared_whatever_the_order_says(tmp_path: Path) -> None:
    assert Node(tmp_path, SIMULATED, order=[Enforcement.DRIVER]).shares.describe(BARE).fractions


def test_a_container_gets_what_its_accelerator_and_its_kind_need(tmp_path: Path) -> None:
    part = Node(tmp_path, GPU, SLICE).shares.prepare("c1", [gpu_share(GPU, 250), gpu_share(SLICE, 250)])
    assert part.kind is Enforcement.SHIM
    assert part.needs == Needs(environment={"BY_shim": "GPU-1"}, nvidia=("GPU-1", "MIG-1"))
    assert Node(tmp_path, GPU).shares.prepare("c2", []).kind is None


def test_only_programs_of_the_multi_process_service_are_detached_before_they_are_killed(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    node.run("c1", gpu_share(GPU, 250))
    assert not node.shares.detaches("c1")
    node.shares.holdings["c1"].kind = Enforcement.MPS
    assert node.shares.detaches("c1")
    assert not node.shares.detaches("c2")
    # there is no service here that could be asked
    with pytest.raises(UnavailableError):
        node.shares.detach("c1")
    node.shares.detach("c2")


def test_a_container_with_slices_only_is_held_by_the_hardware(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SLICE)
    shown = node.shares.dress(node.run("c1", gpu_share(SLICE, 250)))
    assert shown.enforcement is Enforcement.MIG
    assert node.shim.applied == []


def test_other_shares_are_held_and_told_and_outlive_the_agent(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    running = node.run("c1", gpu_share(GPU, 250))
    node.shares.check_change(running, [gpu_share(GPU, 500)])
    node.shares.set_shares("c1", [gpu_share(GPU, 500)])
    node.shares.change("c1", 1)
    assert node.shim.applied == [("c1", [250]), ("c1", [500])]
    assert node.shares.dress(running).gpus == [gpu_share(GPU, 500)]
    again = Node(tmp_path, GPU)
    again.shares.adopt("c1", Enforcement.SHIM, running.gpus)
    again.shares.attach("c1", "engine", 1)
    assert again.shares.dress(running).gpus == [gpu_share(GPU, 500)]
    assert again.shim.applied == [("c1", [500])]


def test_a_change_that_cannot_be_held_is_not_written_down(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    running = node.run("c1", gpu_share(GPU, 250))
    node.shim.refuses = True
    node.shares.set_shares("c1", [gpu_share(GPU, 500)])
    with pytest.raises(UnavailableError):
        node.shares.change("c1", 1)
    again = Node(tmp_path, GPU)
    again.shares.adopt("c1", Enforcement.SHIM, running.gpus)
    assert again.shares.dress(running).gpus == [gpu_share(GPU, 250)]


def test_a_change_names_the_same_gpus_and_no_slice(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SECOND, SLICE)
    running = node.run("c1", gpu_share(GPU, 250), gpu_share(SLICE, 250))
    node.shares.check_change(running, [gpu_share(SLICE, 250), gpu_share(GPU, 250)])
    gone = state("c2", gpu_share(SIMULATED, 500))
    with pytest.raises(InputError, match="has no GPU SIM-1 any more"):
        node.shares.check_change(gone, [gpu_share(SIMULATED, 250)])
    for wanted, reason in (
        ([gpu_share(GPU, 500)], "not the GPUs that the container has"),
        ([gpu_share(GPU, 500), gpu_share(GPU, 500)], "not the GPUs that the container has"),
        ([gpu_share(SECOND, 500), gpu_share(SLICE, 250)], "not the GPUs that the container has"),
        ([gpu_share(GPU, 250), gpu_share(SLICE, 500)], "which is given whole"),
    ):
        with pytest.raises(InputError, match=reason):
            node.shares.check_change(running, wanted)


def test_a_container_keeps_its_kind_and_the_node_goes_on_with_it_until_the_last_has_gone(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SECOND)
    node.shares.adopt("old", Enforcement.NONE, [gpu_share(GPU, 500)])
    assert node.shares.switch_kinds(["old"])
    found = node.shares.describe(BARE)
    assert found.enforcement is Enforcement.NONE
    assert found.enforcement_pending == "shim follows none when the last session that none holds has gone"
    node.run("new", gpu_share(SECOND, 500))
    assert node.shares.holdings["new"].kind is Enforcement.NONE
    node.shares.release("old")
    assert not node.shares.switch_kinds(["new"])
    node.shares.release("new")
    assert node.shares.switch_kinds([])
    found = node.shares.describe(BARE)
    assert (found.enforcement, found.enforcement_pending) == (Enforcement.SHIM, "")


def test_daemons_that_no_kind_in_use_needs_end_where_they_run(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SECOND, SLICE)
    node.leave_daemons(SECOND, SLICE)
    node.shares.tidy()
    assert node.asked == stops(SECOND), "a slice has no daemon of its own"


def test_daemons_stay_until_the_last_container_that_they_hold_has_gone(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SECOND)
    node.leave_daemons(GPU, SECOND)
    node.shares.adopt("old", Enforcement.MPS, [gpu_share(GPU, 500)])
    node.shares.switch_kinds(["old"])
    node.shares.tidy()
    assert node.asked == []
    node.shares.release("old")
    node.shares.switch_kinds([])
    node.shares.tidy()
    assert node.asked == stops(GPU, SECOND)


def test_a_container_that_goes_on_without_its_limits_says_so_until_they_hold_again(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    running = node.run("c1", gpu_share(GPU, 250))
    node.shares.worry("c1", "the limits cannot be read")
    assert node.shares.dress(running).warning == "the limits cannot be read"
    node.shares.attach("c1", "engine-c1", 1)
    assert node.shares.dress(running).warning == ""


def test_slices_never_stand_in_the_way_of_another_kind(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU, SLICE)
    node.shares.adopt("c1", Enforcement.MIG, [gpu_share(SLICE, 250)])
    assert not node.shares.switch_kinds(["c1"])


def test_folders_go_with_their_containers_and_never_before(tmp_path: Path) -> None:
    for name in ("live", "gone", "killed"):
        (tmp_path / name / "account").mkdir(parents=True)
    node = Node(tmp_path, GPU)
    node.shares.sweep(lambda identity: identity == "live")
    assert [folder.name for folder in tmp_path.iterdir()] == ["live"]
    assert sorted(node.shim.removed) == ["gone", "killed"]
    Node(tmp_path / "nowhere", GPU).shares.sweep(lambda _: False)


def test_shares_of_a_container_without_a_folder_are_dropped_too(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    for name in ("live", "gone"):
        node.shares.adopt(name, Enforcement.SHIM, [gpu_share(GPU, 250)])
    node.shares.sweep(lambda identity: identity == "live")
    assert list(node.shares.holdings) == ["live"]
    assert node.shim.removed == ["gone"]


def test_what_cannot_be_removed_holds_up_nothing_else(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    node.shim.refuses = True
    for name in ("one", "other"):
        (tmp_path / name / "account").mkdir(parents=True)
    node.shares.sweep(lambda _: False)
    assert sorted(node.shim.removed) == ["one", "other"]
    assert list(tmp_path.iterdir()) == []


def test_shares_of_a_container_that_has_ended_meanwhile_do_not_change(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    running = node.run("c1", gpu_share(GPU, 250))
    node.shares.release("c1")
    for attempt in (
        lambda: node.shares.check_change(running, [gpu_share(GPU, 500)]),
        lambda: node.shares.set_shares("c1", [gpu_share(GPU, 500)]),
        lambda: node.shares.change("c1", 1),
    ):
        with pytest.raises(ConflictError, match="has ended"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_warning_is_told_while_a_container_runs(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    running = node.run("c1", gpu_share(GPU, 250))
    node.shares.holdings["c1"].warning = "too much"
    assert node.shares.dress(running).warning == "too much"
    assert not node.shares.dress(state("c1", gpu_share(GPU, 250), status=ContainerStatus.EXITED)).warning


def test_a_gpu_that_has_gone_since_holds_nobody_up(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    node.shares.adopt("c1", Enforcement.SHIM, [gpu_share(SECOND, 500)])
    node.shares.attach("c1", "engine", 1)
    assert node.shares.shares_of("c1") == []
    assert node.shares.dress(state("c1")).gpus == [gpu_share(SECOND, 500)]


def test_a_slice_that_has_vanished_holds_nobody_and_its_container_can_be_dropped(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU)
    slice_ = GpuShare("MIG-1", 3, 142)
    node.shares.adopt("c1", Enforcement.MIG, [slice_])
    node.shares.attach("c1", "engine-c1", 1)
    state = node.shares.dress(ContainerState(id="c1", session_id="s", status=ContainerStatus.RUNNING))
    assert (state.gpus, state.enforcement) == ([slice_], Enforcement.MIG)
    assert node.shares.shares_of("c1") == []
    # the others of the node have what they had
    node.run("c2", gpu_share(GPU, 500))
    assert [share.milli for share in node.shares.shares_of("c2")] == [500]
    node.shares.switch_kinds(["c1", "c2"])
    node.shares.release("c1")
    assert list(node.shares.holdings) == ["c2"]
