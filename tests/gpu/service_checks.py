"""Other kinds of enforcement, where the machine has them: the driver's own limits, and MIG."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pynvml

from appliance.gpu import cgroups
from tests.gpu.card import MIB, Card, Program, leashed
from tests.gpu.memory_checks import ends_at
from tests.gpu.outcomes import Figure, NotJudged

OLDEST_DRIVER = 615
GROUP = Path("/sys/fs/cgroup/penstock-check")
LIMIT = 2048 * MIB


def by_driver(card: Card) -> list[Figure]:
    """The driver's own limits hold for a control group, where the driver has them."""
    version = pynvml.nvmlSystemGetDriverVersion()
    if int(version.split(".")[0]) < OLDEST_DRIVER:
        raise NotJudged(f"driver {version} is older than {OLDEST_DRIVER}")
    if not cgroups.is_unified(GROUP.parent):
        raise NotJudged("the machine has no cgroup v2")
    if os.geteuid() != 0:
        raise NotJudged("a control group needs root")
    GROUP.mkdir(exist_ok=True)
    try:
        wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(str(GROUP).encode(), 0, LIMIT)
        pynvml.nvmlDeviceSetMemoryLimits_v1(card.handle, wanted)
        python = f"{sys.executable} -m tests.gpu.program {os.getpid()} fill plain"
        enter = f"echo 0 > {GROUP}/cgroup.procs && exec {python}"
        found = card.hold(Program([*leashed(), "sh", "-c", enter], card.bare)).end()
    finally:
        with suppress(OSError):
            GROUP.rmdir()
    return ends_at(found, LIMIT / MIB)


def by_mig(card: Card) -> list[Figure]:
    """A slice of a card ends where its memory does. The kit cuts no card: it takes a slice that is there."""
    if card.is_cut is None:
        raise NotJudged("this card cannot be cut")
    if not card.is_cut:
        raise NotJudged("MIG is off, and the kit does not cut a card")
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)):
        with suppress(pynvml.NVMLError_NotFound):
            slice_ = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, place)
            total = pynvml.nvmlDeviceGetMemoryInfo(slice_).total
            environment = card.bare | {"CUDA_VISIBLE_DEVICES": pynvml.nvmlDeviceGetUUID(slice_)}
            return ends_at(card.run(environment, "fill", "plain"), total / MIB)
    raise NotJudged("MIG is on, but nobody has cut the card")
