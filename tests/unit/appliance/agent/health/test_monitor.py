"""Tests of the monitor: looks beside all other work, each within its bound."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appliance.agent.health import gpu_checks, monitor
from appliance.agent.health.gpu_checks import LogLine
from appliance.agent.health.monitor import Monitor
from appliance.gpu.devices import GpuHealth
from common.checks import Check, CheckState
from common.health import Damping
from common.settings.health import HealthSettings

pytestmark = pytest.mark.anyio


class Scene:
    """A look that finds what a test says, at times that it says."""

    def __init__(self) -> None:
        self.at = 0.0
        self.found = Check("disk", "disk has room", CheckState.OK, "10 %", subject="/")
        self.monitor = Monitor({"disk": self._look}, Damping(worse=1, better=1), lambda: self.at)
        self.hang: threading.Event | None = None

    def _look(self) -> list[Check]:
        if self.hang:
            self.hang.wait(120)
        return [self.found]

    async def see(self, state: str = "ok", evidence: str = "10 %") -> str:
        self.found = Check("disk", "disk has room", CheckState(state), evidence, subject="/")
        await self.monitor.look()
        return self.told[1]

    @property
    def told(self) -> tuple[str, str]:
        [report] = self.monitor.reports()
        return report.state, report.evidence


async def test_nothing_is_told_before_the_first_look() -> None:
    assert Scene().monitor.reports() == []


async def test_evidence_that_only_changes_is_told_seldom() -> None:
    scene = Scene()
    assert await scene.see() == "10 %"
    scene.at += 540
    assert await scene.see(evidence="11 %") == "10 %"
    scene.at += 120
    assert await scene.see(evidence="12 %") == "12 %"
    assert await scene.see("fail", "97 %") == "97 %"
    scene.at += 30
    assert await scene.see("fail", "98 %") == "97 %"
    scene.at += 31
    assert await scene.see("fail", "99 %") == "99 %"


async def test_a_look_that_hangs_is_unknown_and_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    await scene.see()
    monkeypatch.setattr(monitor, "LOOK_S", 0.05)
    scene.hang = threading.Event()
    await asyncio.wait_for(scene.monitor.look(), 60)
    assert scene.told == ("unknown", "it took longer than 0.05 s to look")
    scene.hang.set()
    scene.hang = None
    monkeypatch.setattr(monitor, "LOOK_S", 30)
    assert await scene.see() == "10 %"


async def test_a_look_that_raises_is_unknown() -> None:
    def look() -> list[Check]:
        raise OSError("no such file")

    made = Monitor({"clock": look}, Damping(), lambda: 0.0)
    await made.look()
    [report] = made.reports()
    assert (report.id, report.state, report.evidence) == ("clock", "unknown", "it cannot be looked at: no such file")


async def test_a_change_is_told_at_once() -> None:
    scene, changes = Scene(), asyncio.Event()
    task = asyncio.create_task(scene.monitor.run(0.01, changes.set))
    await asyncio.wait_for(changes.wait(), 60)
    changes.clear()
    scene.found = Check("disk", "disk has room", CheckState.FAIL, "a\x00b\nc", subject="/")
    await asyncio.wait_for(changes.wait(), 60)
    assert scene.told == ("fail", "a b c")
    task.cancel()


XIDS = [LogLine("2026-01-01T00:00:00Z", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")]


class Gpus:
    """A look at a GPU that may be silent, or cannot be looked at."""

    def __init__(self) -> None:
        self.at = 0.0
        self.silent = self.error = ""
        self.log: list[LogLine] = []
        self.monitor = Monitor({"gpu": self._look}, Damping(), lambda: self.at)

    def _look(self) -> list[Check]:
        if self.error:
            raise RuntimeError(self.error)
        found = {"GPU-1": GpuHealth(bus="0000:3b:00.0", silent=self.silent)}
        return list(gpu_checks.checks(found, self.log, HealthSettings()))

    async def looks(self, number: int) -> dict[str, str]:
        for _ in range(number):
            self.at += 10
            await self.monitor.look()
        return {report.id: report.state.value for report in self.monitor.reports() if report.state != "ok"}


async def test_a_check_that_fails_does_so_while_its_look_fails() -> None:
    gpus = Gpus()
    gpus.silent = "it has fallen off the bus"
    await gpus.looks(2)
    gpus.error = "NVML: unknown error"
    assert await gpus.looks(100) == {"gpu.present": "fail"}


async def test_a_check_that_its_look_misses_is_not_well() -> None:
    gpus = Gpus()
    gpus.log = XIDS
    await gpus.looks(3)
    gpus.silent = "it has fallen off the bus"
    assert await gpus.looks(1) == {"gpu.xid": "fail"}
    assert await gpus.looks(2) == {"gpu.xid": "fail", "gpu.present": "fail", "gpu.clocks": "unknown"}
    # by now it is plain that there is no such thing any more
    assert await gpus.looks(60) == {"gpu.present": "fail"}


async def test_a_look_that_failed_at_first_leaves_nothing_behind() -> None:
    gpus = Gpus()
    gpus.error = "NVML: not yet"
    assert await gpus.looks(1) == {"gpu": "unknown"}
    gpus.error = ""
    assert await gpus.looks(1) == {}
    assert "gpu" not in {report.id for report in gpus.monitor.reports()}


async def test_what_occurs_anew_is_told_at_once() -> None:
    gpus, changes = Gpus(), asyncio.Event()
    gpus.log = XIDS
    task = asyncio.create_task(gpus.monitor.run(0.01, changes.set))
    await asyncio.wait_for(changes.wait(), 60)
    changes.clear()
    gpus.log = [*XIDS, LogLine("2026-01-01T01:30:00Z", XIDS[0].text)]
    await asyncio.wait_for(changes.wait(), 60)
    [since] = [report.since for report in gpus.monitor.reports() if report.since]
    assert f"{since:%H:%M}" == "01:30"
    task.cancel()
