"""Checks of GPUs: judged by what NVML and the kernel's log tell of each, and by what the site expects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.gpu.devices import GpuHealth
from common.checks import Check, CheckState
from common.health import graded
from common.protocol import GpuDevice
from common.settings.health import HealthSettings

SMI = "look at `nvidia-smi -q` and at the kernel's log; a reset or a restart of the node may bring it back"
OF_PROGRAMS = frozenset({8, 13, 31, 32, 37, 43, 44, 45, 68, 69})
"""Xids of programs that did something wrong: the GPU is well."""
FATAL = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 136, 140, 143, 154})
"""Xids after which a GPU works no more, or wrongly, before it was reset or replaced."""

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


@dataclass(frozen=True)
class Expected:
    """GPUs that the site's file gives a node; None and nothing mean that it does not say."""

    count: int | None = None
    model: str = ""


@dataclass(frozen=True)
class LogLine:
    """A line of the kernel's log and when it was written, UTC."""

    at: str
    text: str


def devices(gpus: Iterable[GpuDevice]) -> dict[str, str]:
    """Return the models of GPUs by their ids; slices count as the GPU that they are of."""
    return {gpu.parent or gpu.uuid: gpu.model.partition(" MIG ")[0] for gpu in gpus}


def count(models: Mapping[str, str], expected: Expected) -> Iterator[Check]:
    """Compare the GPUs that a node has with those of the site's file."""
    if expected.count is None and not models:
        return
    problems = []
    if expected.count is not None and len(models) != expected.count:
        problems.append(f"the site file has {expected.count}")
    others = sorted({model for model in models.values() if expected.model.lower() not in model.lower()})
    if others:
        problems.append(f"the site file has {expected.model}, not {', '.join(others)}")
    said = "; ".join([f"{len(models)} GPUs", *problems])
    yield Check.of("gpu.count", "GPUs are those of the site file", ok=not problems, evidence=said, hint=SMI)


def checks(found: Mapping[str, GpuHealth], log: Sequence[LogLine] | None, settings: HealthSettings) -> Iterator[Check]:
    """Judge GPUs by their ids; without a `log` nothing is said of Xids."""
    most = max((each.links for each in found.values()), default=0)
    for uuid, each in found.items():
        said = each.silent or "it answers"
        yield Check.of("gpu.present", "GPU answers", ok=not each.silent, evidence=said, hint=SMI, subject=uuid)
        if each.silent:
            continue
        yield from _memory(uuid, each)
        yield from _heat(uuid, each, settings)
        if each.all_links:
            said = f"{each.links} of {each.all_links} links are up"
            said += f", {most} of another GPU" if each.links < most else ""
            yield Check.of("gpu.nvlink", "NVLinks are up", ok=each.links >= most, evidence=said, hint=SMI, subject=uuid)
        if log is not None:
            yield _xid(uuid, each.bus, log)


def _memory(uuid: str, found: GpuHealth) -> Iterator[Check]:
    name = "GPU memory is without errors"
    if found.uncorrected is None:
        return
    said = f"{found.uncorrected} uncorrected errors since the driver was loaded"
    if found.needs_replacement:
        yield Check("gpu.ecc", name, CheckState.FAIL, f"{said}; it has no row left to remap", "replace it", uuid)
    elif found.uncorrected:
        yield Check("gpu.ecc", name, CheckState.FAIL, said, SMI, uuid)
    elif found.needs_reset:
        yield Check("gpu.ecc", name, CheckState.WARN, "rows are remapped at the next reset", SMI, uuid)
    else:
        yield Check("gpu.ecc", name, CheckState.OK, said, subject=uuid)


def _heat(uuid: str, found: GpuHealth, settings: HealthSettings) -> Iterator[Check]:
    hint = "look at the fans and the air of the rack"
    if (heat := found.temperature_c) is not None:
        state = graded(heat, settings.health_gpu_warn_c, settings.health_gpu_fail_c)
        shown = hint if state is not CheckState.OK else ""
        yield Check("gpu.temperature", "GPU is cool enough", state, f"{heat} °C", shown, uuid)
    state = CheckState.WARN if found.slowed else CheckState.OK
    said = "; ".join(found.slowed) or "its clocks are not held down"
    yield Check("gpu.clocks", "GPU runs at its clocks", state, said, hint if found.slowed else "", uuid)


def _xid(uuid: str, bus: str, log: Sequence[LogLine]) -> Check:
    """Judge by the worst and last error that the driver has told of a GPU since the machine started."""
    name, worst, last = "driver tells no error of the GPU", CheckState.OK, None
    for line in log:
        if not (found := _XID.search(line.text)) or _slot(found[1]) != _slot(bus):
            continue
        number = int(found[2])
        if number in OF_PROGRAMS:
            continue
        state = CheckState.FAIL if number in FATAL else CheckState.WARN
        if state is CheckState.FAIL or worst is not CheckState.FAIL:
            worst, last = state, line
    if last is None:
        return Check("gpu.xid", name, CheckState.OK, "no Xid since the machine started", subject=uuid)
    hint = f"{SMI}; `penstock health clear` when it was looked after"
    return Check("gpu.xid", name, worst, last.text[last.text.index("Xid") :], hint, uuid, since=last.at)


def _slot(bus: str) -> tuple[int, ...]:
    """Return a place on the PCI bus as numbers: the driver, the kernel and NVML write it with more or fewer digits."""
    domain, number, rest = bus.partition(".")[0].split(":")
    return int(domain, 16), int(number, 16), int(rest, 16)
