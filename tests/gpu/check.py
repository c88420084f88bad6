"""The shares of a real GPU, checked in under ten minutes: one JSON verdict per check, and exit code 1 where one fails.

Needs an NVIDIA GPU that nobody else uses, gcc and NVIDIA's header wheels; root for the driver's own limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pynvml

from appliance.gpu import cgroups
from appliance.gpu.layout import Limit
from appliance.gpu.share_files import LimitsFile, create_account
from appliance.gpu.timetable import Sharer, plan
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import build_shim

MIB = 1 << 20
PERIOD_NS = 200_000_000
MODES = {"native": "backend:native", "async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}
OLDEST_DRIVER = 615
GROUP = Path("/sys/fs/cgroup/penstock-check")

Verdict = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """What the checks stand on: the GPU, the shim, a folder of their own, and how long the shares are measured."""

    gpu: Any
    uuid: str
    shim: Path
    folder: Path
    seconds: float

    def environment(self, memory: int, milli: int = 1000, of: Sequence[int] = (1000,)) -> dict[str, str]:
        """The environment of a tenant with this memory and, beside the others `of` this GPU, this part of its time."""
        place = self.folder / f"{memory}-{milli}-{time.monotonic_ns()}"
        compute = Compute.OFF if milli == 1000 else Compute.STRICT
        file = LimitsFile.create(place / "limits", [Limit(self.uuid, memory, milli, compute)])
        create_account(place / "account", 1)
        if milli != 1000:
            windows = plan([Sharer(str(share), share) for share in of], compute, PERIOD_NS, 1)
            file.schedule({self.uuid: windows[str(milli)]}, 1)
        paths = {"PENSTOCK_TEST_LIMITS": str(place / "limits"), "PENSTOCK_TEST_ACCOUNT": str(place / "account")}
        return {**bare(self.uuid), "LD_PRELOAD": str(self.shim), **paths}

    def used(self) -> int:
        """Bytes in use on the GPU, whoever uses them."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.gpu).used)


def bare(uuid: str) -> dict[str, str]:
    """The environment of a program that has this GPU alone and no shim."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}


def start(environment: dict[str, str], *arguments: str, module: str = "tests.gpu.load") -> subprocess.Popen[str]:
    """Start a program that uses the GPU."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def last(process: subprocess.Popen[str], text: str | None = None) -> Any:
    """Wait for a program's end; returns the last JSON line that it printed."""
    output, _ = process.communicate(text, timeout=600)
    if process.returncode != 0:
        raise RuntimeError(f"the program ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


@contextmanager
def watched(site: Site) -> Iterator[list[int]]:
    """Watch the memory in use, above what was in use before: the list holds the most of it at the end."""
    before, most, over = site.used(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], site.used() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def shown(site: Site) -> Verdict:
    """A program sees its limit as the GPU's memory."""
    limit = 2048 * MIB
    found = last(start(site.environment(limit), "show"))
    return {"ok": found["total"] == limit and 0 < found["free"] <= limit, "limit": limit, **found}


def filled(site: Site) -> Verdict:
    """Out of memory comes at the limit, in each way to allocate; the host never sees more than the limit."""
    limit, torch, result = 4096 * MIB, find_spec("torch") is not None, {}
    modes = MODES if torch else {name: name for name in ("plain", "async", "virtual")}
    for name, setting in modes.items():
        environment = site.environment(limit)
        with watched(site) as most:
            if torch:
                environment |= {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
                found = last(start(environment, module="tests.gpu.pytorch"))
            else:
                found = last(start(environment, "fill", setting))
        # a block at most is left, beside the context
        reached = limit - 1024 * MIB < found["held"] <= limit and found["code"] == 2
        result[name] = {"ok": reached and 0 < most[0] <= limit, "host_saw": most[0], **found}
    return {"ok": all(each["ok"] for each in result.values()), "limit": limit, "pytorch": torch, **result}


def resolved(site: Site) -> Verdict:
    """Both ways to a function lead into the shim."""
    found = last(start(site.environment(1024 * MIB), "resolve"))
    return {"ok": set(found.values()) == {site.shim.name}, **found}


def killed(site: Site) -> Verdict:
    """What a killed process held is free for the next."""
    limit = 2048 * MIB
    environment = site.environment(limit)
    first = start(environment, "hold", str(limit // 2))
    assert first.stdout
    held = json.loads(first.stdout.readline())["held"]
    first.kill()
    first.wait()
    found = last(start(environment, "fill", "plain"))
    return {"ok": held == limit // 2 and found["held"] > limit // 2, "limit": limit, **found}


def together(site: Site, environments: Sequence[dict[str, str]], seconds: float) -> list[float]:
    """Let programs compute at the same time, with kernels of one length; returns kernels a second of each."""
    alone = start(bare(site.uuid), "loop", "0.1")
    assert alone.stdout
    rounds = json.loads(alone.stdout.readline())["rounds"]
    last(alone, f"{rounds}\n")
    running = [start(environment, "loop", str(seconds)) for environment in environments]
    try:
        for process in running:
            assert process.stdout
            # all are warm before the first begins
            if not process.stdout.readline():
                raise RuntimeError("a program ended before it was warm")
        for process in running:
            assert process.stdin
            process.stdin.write(f"{rounds}\n")
            process.stdin.flush()
        done = [last(process) for process in running]
    finally:
        # where one has failed, the others would disturb the checks that follow
        for process in running:
            process.kill()
            process.wait()
    return [found["kernels"] / found["seconds"] for found in done]


def divided(site: Site) -> Verdict:
    """Two programs with 30 and 70 per cent of the time get them within three points."""
    of = (300, 700)
    rates = together(site, [site.environment(2048 * MIB, milli, of) for milli in of], site.seconds)
    parts = [rate / sum(rates) for rate in rates]
    return {"ok": abs(parts[0] - 0.3) <= 0.03, "parts": [round(part, 4) for part in parts], "seconds": site.seconds}


def undisturbed(site: Site) -> Verdict:
    """A program that has the whole GPU is as fast with the shim as without, within one per cent."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(3):
        rates["without"] += together(site, [bare(site.uuid)], site.seconds / 16)
        rates["with"] += together(site, [site.environment(0)], site.seconds / 16)
    ratio = max(rates["with"]) / max(rates["without"])
    return {"ok": ratio >= 0.99, "ratio": round(ratio, 4)}


def by_driver(site: Site) -> Verdict:
    """The driver's own limits hold for a control group, where the driver has them."""
    version = pynvml.nvmlSystemGetDriverVersion()
    if int(version.split(".")[0]) < OLDEST_DRIVER:
        return {"ok": True, "skipped": f"driver {version} is older than {OLDEST_DRIVER}"}
    if not cgroups.is_unified(GROUP.parent):
        return {"ok": True, "skipped": "the machine has no cgroup v2"}
    limit = 2048 * MIB
    GROUP.mkdir(exist_ok=True)
    try:
        wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(str(GROUP).encode(), 0, limit)
        pynvml.nvmlDeviceSetMemoryLimits_v1(site.gpu, wanted)
        enter = f"echo 0 > {GROUP}/cgroup.procs && exec {sys.executable} -m tests.gpu.load fill plain"
        command = ["sh", "-c", enter]
        process = subprocess.Popen(command, env=bare(site.uuid), text=True, stdout=subprocess.PIPE)
        found = last(process)
    finally:
        with suppress(OSError):
            GROUP.rmdir()
    return {"ok": limit - 1024 * MIB < found["held"] <= limit, "limit": limit, **found}


CHECKS: tuple[Callable[[Site], Verdict], ...] = (shown, filled, resolved, killed, divided, undisturbed, by_driver)


def run(site: Site) -> bool:
    """Run all checks, print the verdict of each; returns whether all hold."""
    good = True
    for check in CHECKS:
        begun = time.monotonic()
        try:
            verdict = check(site)
        except (RuntimeError, OSError, LookupError, ValueError, pynvml.NVMLError, subprocess.SubprocessError) as error:
            verdict = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        good &= verdict["ok"]
        print(
            json.dumps({"check": check.__name__, **verdict, "took_s": round(time.monotonic() - begun, 1)}), flush=True
        )
    return good


def main() -> None:
    """Check the first GPU."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=240, help="how long shares of time are measured")
    seconds = options.parse_args().seconds
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        print(
            f"error: there is no GPU here: {error}. Hint: run this on a node with a GPU and its driver", file=sys.stderr
        )
        raise SystemExit(2) from None
    with TemporaryDirectory(prefix="penstock-check-") as name:
        site = Site(gpu, pynvml.nvmlDeviceGetUUID(gpu), build_shim(Path(name)), Path(name), seconds)
        raise SystemExit(0 if run(site) else 1)


if __name__ == "__main__":
    main()
