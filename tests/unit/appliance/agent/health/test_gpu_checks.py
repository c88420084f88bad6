"""Tests of the judgement of GPUs."""

from __future__ import annotations

import pytest

from appliance.agent.health import gpu_checks
from appliance.agent.health.gpu_checks import Expected, LogLine
from appliance.gpu.devices import GpuHealth
from common.checks import Check
from common.protocol import GpuDevice
from common.settings.health import HealthSettings

BUS = "00000000:01:00.0"
WELL = GpuHealth(bus=BUS, temperature_c=60, uncorrected=0, links=4, all_links=4)
LINE = "NVRM: Xid (PCI:0000:{bus}): {number}, pid=1234, name=python, GPU has fallen off the bus."


def judged(health: GpuHealth, *log: str, others: tuple[GpuHealth, ...] = ()) -> dict[str, Check]:
    found = {"GPU-0": health, **{f"GPU-{index}": other for index, other in enumerate(others, start=1)}}
    lines = [LogLine("2026-01-01T00:00:00Z", text) for text in log]
    checks = gpu_checks.checks(found, lines, HealthSettings())
    return {check.id: check for check in checks if check.subject == "GPU-0"}


def xid(number: int, bus: str = "01:00") -> str:
    return LINE.format(bus=bus, number=number)


def test_a_well_gpu_is_well() -> None:
    found = judged(WELL)
    assert sorted(found) == ["gpu.clocks", "gpu.ecc", "gpu.nvlink", "gpu.present", "gpu.temperature", "gpu.xid"]
    assert {check.state for check in found.values()} == {"ok"}
    assert not any(check.hint for check in found.values())


def test_one_that_fell_off_the_bus_says_no_more() -> None:
    found = judged(GpuHealth(silent="it has fallen off the bus"))
    assert [(check.id, check.state, check.evidence) for check in found.values()] == [
        ("gpu.present", "fail", "it has fallen off the bus")
    ]


@pytest.mark.parametrize(
    ("health", "check", "state"),
    [
        (GpuHealth(bus=BUS, temperature_c=86), "gpu.temperature", "warn"),
        (GpuHealth(bus=BUS, temperature_c=96), "gpu.temperature", "fail"),
        (GpuHealth(bus=BUS, uncorrected=1), "gpu.ecc", "fail"),
        (GpuHealth(bus=BUS, uncorrected=0, needs_reset=True), "gpu.ecc", "warn"),
        (GpuHealth(bus=BUS, uncorrected=0, needs_replacement=True), "gpu.ecc", "fail"),
        (GpuHealth(bus=BUS, slowed=("it is too hot",)), "gpu.clocks", "warn"),
    ],
)
def test_what_is_wrong_is_told_with_a_hint(health: GpuHealth, check: str, state: str) -> None:
    found = judged(health)[check]
    assert found.state == state
    assert found.hint


def test_what_a_gpu_cannot_tell_is_no_check() -> None:
    assert not {"gpu.ecc", "gpu.temperature", "gpu.nvlink"} & judged(GpuHealth(bus=BUS)).keys()


def test_a_gpu_with_fewer_links_than_its_neighbour_fails() -> None:
    bad = GpuHealth(bus=BUS, links=3, all_links=4)
    assert judged(bad, others=(WELL,))["gpu.nvlink"].state == "fail"
    # where all are so, that is how they are built
    assert judged(bad, others=(bad,))["gpu.nvlink"].state == "ok"


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ([xid(79)], "fail"),
        ([xid(79, "02:00")], "ok"),
        ([xid(13)], "ok"),
        ([xid(63)], "warn"),
        ([xid(79), xid(63)], "fail"),
        (["NVRM: loading"], "ok"),
    ],
)
def test_xids_are_judged_by_what_they_mean(log: list[str], state: str) -> None:
    found = judged(WELL, *log)["gpu.xid"]
    assert found.state == state
    if state == "fail":
        assert found.since == "2026-01-01T00:00:00Z"
        assert found.evidence.startswith("Xid (PCI:0000:01:00): 79")


def test_gpus_are_counted_against_the_site_file() -> None:
    slices = [
        GpuDevice(index=2 + n, uuid=f"MIG-{n}", model="NVIDIA A100 MIG 1g.5gb", memory_mib=1, parent="GPU-1")
        for n in range(2)
    ]
    models = gpu_checks.devices([GpuDevice(index=0, uuid="GPU-0", model="NVIDIA A100", memory_mib=1), *slices])
    assert models == {"GPU-0": "NVIDIA A100", "GPU-1": "NVIDIA A100"}
    [good] = gpu_checks.count(models, Expected(2, "a100"))
    assert (good.state, good.evidence) == ("ok", "2 GPUs")
    [bad] = gpu_checks.count(models, Expected(4, "h100"))
    assert bad.state == "fail"
    assert bad.evidence == "2 GPUs; the site file has 4; the site file has h100, not NVIDIA A100"
    assert list(gpu_checks.count({}, Expected())) == []
