"""Tests of the looks at links, disks, memory, the kernel's log and what the agent knows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from appliance.agent.health import machine_look
from appliance.agent.health.fabric_look import FabricLook
from appliance.agent.health.gpu_checks import Expected, LogLine
from appliance.agent.health.gpu_look import GpuLook, KernelLog
from appliance.gpu import health
from appliance.gpu.devices import GpuHealth
from common import machine_checks
from common.health import CLOSING
from common.protocol import GpuDevice, NodeInfo
from common.settings.health import HealthSettings


def port(folder: Path, **said: str) -> Path:
    """A port as the kernel shows it."""
    here = folder / "mlx5_0/ports/1"
    (here / "counters").mkdir(parents=True, exist_ok=True)
    good = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)"}
    for name, text in (good | said).items():
        (here / name).write_text(f"{text}\n")
    return here


def test_a_link_that_carries_data_is_well(tmp_path: Path) -> None:
    port(tmp_path)
    found = {check.id: check for check in FabricLook(HealthSettings(), tmp_path).look()}
    assert (found["fabric.link"].state, found["fabric.link"].evidence) == ("ok", "ACTIVE, 100 Gb/sec (4X EDR)")
    assert (found["fabric.errors"].state, found["fabric.link"].subject) == ("ok", "mlx5_0:1")


def test_a_link_that_is_down_or_slow_fails(tmp_path: Path) -> None:
    port(tmp_path, state="1: DOWN", phys_state="3: Disabled")
    [link, _] = FabricLook(HealthSettings(), tmp_path).look()
    assert (link.state, link.evidence) == ("fail", "1: DOWN, 3: Disabled")
    port(tmp_path, rate="40 Gb/sec (4X QDR)")
    [link, _] = FabricLook(HealthSettings(health_fabric_gbps=100), tmp_path).look()
    assert (link.state, link.evidence) == ("fail", "40 Gb/s, not 100")


def test_a_port_of_ethernet_closes_no_node_for_sessions_do_not_go_by_it(tmp_path: Path) -> None:
    ethernet = {"link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)"}
    down = {"state": "1: DOWN", "phys_state": "3: Disabled"}
    look = FabricLook(HealthSettings(health_fabric_gbps=200), tmp_path)
    port(tmp_path, **ethernet, **down)
    assert look.look() == [], "nobody has plugged a cable into it"
    port(tmp_path, **ethernet)
    link, errors = look.look()
    assert (link.id, link.name, link.state) == ("fabric.link", "RoCE link is up", "ok")
    assert (errors.name, errors.state) == ("RoCE link is without errors", "ok")
    port(tmp_path, **ethernet, **down)
    link = look.look()[0]
    assert (link.state, link.evidence) == ("warn", "1: DOWN, 3: Disabled")
    assert "subnet manager" not in link.hint
    shutil.rmtree(tmp_path / "mlx5_0")
    [link] = look.look()
    assert (link.name, link.state, link.evidence) == ("RoCE link is up", "warn", "it is gone from the bus")


def test_errors_that_grow_warn(tmp_path: Path) -> None:
    here, look = port(tmp_path), FabricLook(HealthSettings(), tmp_path)
    (here / "counters/symbol_error").write_text("1000\n")
    assert look.look()[1].state == "ok"
    (here / "counters/symbol_error").write_text("1011\n")
    assert (look.look()[1].state, look.look()[1].state) == ("warn", "ok")


def test_modules_of_the_kernel_that_a_node_was_set_up_with_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "nvidia_peermem").mkdir()
    found = [*machine_look.modules(["nvidia_peermem", "rdma_ucm"], tmp_path)]
    assert [(check.id, check.subject, check.state) for check in found] == [
        ("module", "nvidia_peermem", "ok"),
        ("module", "rdma_ucm", "fail"),
    ]
    assert found[1].hint.startswith("look at `modprobe rdma_ucm`")


def test_a_fabric_manager_that_does_not_run_closes_its_node_as_no_other_unit_does() -> None:
    said = "Id={}.service\nLoadState=loaded\nActiveState={}\nSubState=dead\n"
    shown = "\n".join([said.format("nvidia-fabricmanager", "failed"), said.format("nginx", "failed")])
    fabric, other = machine_checks.units(shown)
    assert (fabric.id, fabric.state, fabric.evidence, fabric.repair) == ("gpu.fabric", "fail", "failed (dead)", "5-D")
    assert (other.id, other.state) == ("service", "fail")
    assert "gpu.fabric" in CLOSING
    assert "service" not in CLOSING


def test_a_link_that_left_the_bus_fails(tmp_path: Path) -> None:
    look = FabricLook(HealthSettings(), tmp_path)
    port(tmp_path)
    look.look()
    shutil.rmtree(tmp_path / "mlx5_0")
    for _ in range(2):
        [link] = look.look()
        assert (link.state, link.evidence, link.subject) == ("fail", "it is gone from the bus", "mlx5_0:1")
    port(tmp_path)
    assert look.look()[0].state == "ok"


def test_a_node_without_links_has_no_check(tmp_path: Path) -> None:
    assert FabricLook(HealthSettings(), tmp_path / "none").look() == []


def test_a_disk_that_cannot_be_looked_at_keeps_no_other_from_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    folders = [tmp_path / "file/inner", tmp_path / "loop", tmp_path]
    found = [(check.state, check.subject) for check in machine_checks.disks(folders, 101, 102)]
    assert found == [("unknown", str(tmp_path / "loop")), ("ok", str(tmp_path))]


def test_disks_count_once_each(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    found = list(machine_checks.disks([tmp_path, tmp_path / "inner", tmp_path / "none"], 85, 95))
    assert [check.subject for check in found] == [str(tmp_path)]
    assert found[0].evidence.endswith(" is full") or " of its files" in found[0].evidence
    [full] = machine_checks.disks([tmp_path], -2, -1)
    assert (full.state, bool(full.hint)) == ("fail", True)


def test_memory_is_what_nobody_could_have(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    for available, state in ((50, "ok"), (9, "warn"), (2, "fail")):
        path.write_text(f"MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
        [found] = machine_checks.memory(90, 97, path)
        assert (found.state, found.evidence) == (state, f"{100 - available} % is in use")


def test_the_kernel_s_log_is_read_as_it_grows(tmp_path: Path) -> None:
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    log = KernelLog(pipe)
    assert log.lines() == []
    with pipe.open("wb", buffering=0) as kernel:
        kernel.write(b"6,1,1000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1\n SUBSYSTEM=pci\n")
        [line] = log.lines() or []
        assert line.text == "NVRM: Xid (PCI:0000:01:00): 79, pid=1"
        assert log.lines() == [line]
    assert KernelLog(tmp_path / "none").lines() is None


@pytest.mark.parametrize(("accelerator", "simulated"), [("nvidia", False), ("nvidia", True), ("acme", False)])
def test_nvml_and_the_kernel_are_asked_about_real_gpus_of_nvidia_alone(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, simulated: bool
) -> None:
    monkeypatch.setattr(health, "look", lambda _, uuid: GpuHealth(bus="00000000:01:00.0"))
    line = LogLine("2026-01-01T00:00:00Z", "NVRM: Xid (PCI:0000:01:00): 79, pid=1")
    monkeypatch.setattr(KernelLog, "lines", lambda _: [line])
    gpu = GpuDevice(index=0, uuid="GPU-0", model="A100", memory_mib=1, accelerator=accelerator, simulated=simulated)
    found = {check.id: check for check in GpuLook(lambda: [gpu], Expected(1, "A100"), HealthSettings()).look()}
    is_asked = accelerator == "nvidia" and not simulated
    assert found.keys() == {"gpu.count"} | ({"gpu.present", "gpu.clocks", "gpu.xid"} if is_asked else set())
    assert not is_asked or found["gpu.xid"].state == "fail"


def test_what_the_agent_knows_is_told() -> None:
    info = NodeInfo(name="w", agent_version="1", engine_version="20.10", os="Debian", cpu_milli=1, memory_mib=1)
    assert [(check.id, check.state) for check in machine_look.known(info, ("shared",))] == [
        ("engine", "ok"),
        ("storage", "ok"),
    ]
    bad = info.model_copy(update={"unready": "it does not answer", "missing_storages": {"shared": "not mounted"}})
    engine, storage = machine_look.known(bad, ("shared",))
    assert (engine.state, engine.evidence, engine.repair) == ("fail", "it does not answer", "5-D")
    assert (storage.state, storage.evidence, storage.subject) == ("fail", "not mounted", "shared")
