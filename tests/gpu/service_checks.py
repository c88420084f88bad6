"""Other kinds of enforcement, where the machine has them: the driver's own limits, MPS, MIG."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml

from appliance.gpu import cgroups
from tests.gpu.card import MIB, Card, Program, ProgramError, leashed
from tests.gpu.memory_checks import LEFT_MIB, OUT_OF_MEMORY
from tests.gpu.outcomes import Figure, NotJudged

OLDEST_DRIVER = 615
GROUP = Path("/sys/fs/cgroup/penstock-check")
LIMIT = 2048 * MIB
CONTROL = "nvidia-cuda-mps-control"
START_S = 10.0
GONE_S = 20.0
"""The longest after its daemon's end that a client may go on without an error."""


def _ends_at(found: dict[str, int], limit_mib: float, left_mib: float = LEFT_MIB) -> list[Figure]:
    return [
        Figure("held at the refusal", found["held"] / MIB, "MiB", limit_mib, bound="most"),
        Figure("it is near the limit", found["held"] / MIB, "MiB", limit_mib - left_mib, bound="least"),
        Figure("the refusal", found["code"], wanted=OUT_OF_MEMORY, note="2 is out of memory"),
    ]


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
    return _ends_at(found, LIMIT / MIB)


@contextmanager
def _daemon(card: Card) -> Iterator[tuple[Program, dict[str, str]]]:
    """Run a daemon of MPS for this card, with folders of its own; yields it and the environment of its clients."""
    control = shutil.which(CONTROL)
    if control is None:
        raise NotJudged(f"there is no {CONTROL} here")
    if os.geteuid() != 0:
        raise NotJudged("a daemon of MPS that ends for certain needs root")
    with tempfile.TemporaryDirectory(prefix="penstock-mps-") as name:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{name}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{name}/log"}
        for folder in places.values():
            Path(folder).mkdir()
        environment = card.bare | places
        daemon = card.hold(Program([*leashed(), control, "-f"], environment))
        try:
            until = time.monotonic() + START_S
            while not Path(name, "pipe/control").exists():
                if daemon.process.poll() is not None or time.monotonic() > until:
                    raise NotJudged(f"{CONTROL} does not start here")
                time.sleep(0.05)
            yield daemon, environment
        finally:
            with suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run([control], input="quit -t 2\n", env=environment, text=True, timeout=10, check=False)
            daemon.kill()


def by_mps(card: Card) -> list[Figure]:
    """A client of MPS ends at the limit of its environment; others go on when one is killed."""
    with _daemon(card) as (_, environment):
        limited = environment | {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={LIMIT // MIB}M"}
        figures = _ends_at(card.run(limited, "fill", "plain"), LIMIT / MIB)
        stays, goes = (card.start(limited, "show") for _ in range(2))
        stays.line()
        goes.line()
        goes.kill()
        try:
            after = "goes on" if stays.ask()["total"] else "fails"
        except ProgramError as error:
            after = f"fails: {error}"
        return [*figures, Figure("a client beside one that is killed", after, wanted="goes on")]


def mps_without_its_daemon(card: Card) -> list[Figure]:
    """A client whose daemon is killed hears of it, and does not hang; one that begins then has no more than it may."""
    with _daemon(card) as (daemon, environment):
        client = card.start(environment, "show")
        client.line()
        daemon.kill()
        begun = time.monotonic()
        heard = "an answer"
        while time.monotonic() - begun < GONE_S:
            try:
                client.ask()
            except ProgramError:
                heard = "an error"
                break
            time.sleep(0.5)
        return [
            Figure("a client hears", heard, note="within 20 s of its daemon's end"),
            Figure("a call takes at most", round(time.monotonic() - begun, 1), "s", GONE_S + 5, bound="most"),
        ]


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
            return _ends_at(card.run(environment, "fill", "plain"), total / MIB)
    raise NotJudged("MIG is on, but nobody has cut the card")
