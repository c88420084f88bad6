"""The shares of a real GPU, judged in under ten minutes: figures with tolerances as JSON, as a page and as text.

Exit codes: 0 all that was judged is within its tolerance, 1 something is not, 2 nothing could be judged here.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

import pynvml

from common.errors import PenstockError
from tests.gpu import (
    account_checks,
    assumptions,
    framework_checks,
    kernel_checks,
    memory_checks,
    mps_checks,
    page,
    remains,
    service_checks,
    share_checks,
)
from tests.gpu.card import MIB, ROOT, Card, ProgramError
from tests.gpu.outcomes import Figure, NotJudged, Outcome, State

LIBRARIES = ROOT / "lib"
LEAST_FREE_MIB = 6144
"""Memory of the card that the checks take."""

Check = Callable[[Card], list[Figure]]

CHECKS: dict[str, Check] = {
    "kernel: locks of open files": kernel_checks.open_file_locks,
    "kernel: pages that a fork wipes": kernel_checks.wiped_on_fork,
    "driver: identity of functions": assumptions.identity,
    "driver: functions lead into the library": assumptions.resolved,
    "driver: granularity": assumptions.granularity,
    "driver: size of a context": assumptions.context_size,
    "NVML: processes of containers": assumptions.host_pids,
    "NVML: the share inside of a container": assumptions.shown_in_a_container,
    "memory: what is shown": memory_checks.shown,
    "memory: full": memory_checks.filled,
    "memory: after a kill": memory_checks.killed,
    "memory: resized": memory_checks.resized,
    "memory: random programs": account_checks.random_programs,
    **share_checks.row_checks(),
    "time: resized": share_checks.resized_time,
    "time: fair mode": share_checks.fair,
    "time: two processes of a tenant": share_checks.processes,
    "time: a whole card": share_checks.undisturbed,
    "PyTorch: full": framework_checks.pytorch_filled,
    "PyTorch: overhead": framework_checks.pytorch_overhead,
    "kind driver": service_checks.by_driver,
    "kind mps": mps_checks.limits,
    "kind mps: a client is killed at work": mps_checks.killed_at_work,
    "kind mps: its daemon is killed": mps_checks.without_its_daemon,
    "kind mps: its server is killed": mps_checks.without_its_server,
    "kind mps: parts of the cores": mps_checks.cores,
    "kind mig": service_checks.by_mig,
}


WHATEVER_IS_CUT = ("kernel: ", "kind mig")
"""How checks begin that can be made where MIG is on."""


class _Stopped(BaseException):
    """Somebody has asked us to end."""


def main() -> int:
    """Judge the first GPU; returns the exit code."""
    options = _options()
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, _stop)
    try:
        with TemporaryDirectory(prefix="penstock-check-") as name:
            return _judge(_card(options, Path(name)), options)
    except _Refused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, _Stopped):
        print("error: stopped; no program of the kit is left. Hint: run it again", file=sys.stderr)
        return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="check.py", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("result"), help="folder for result.json and result.html")
    parser.add_argument("--minutes", type=float, default=9, help="checks that would begin later are not judged")
    parser.add_argument("--only", default="", help="checks whose names have this in them; more by commas")
    parser.add_argument("--quick", action="store_true", help="every row for a second: for trying the kit, not a card")
    parser.add_argument("--library", type=Path, help="another library to judge, built to read paths from variables")
    return parser.parse_args()


class _Refused(Exception):  # noqa: N818 - it is told, not raised further
    """Nothing can be judged on this machine; the text says why, and what to do."""


def _card(options: argparse.Namespace, folder: Path) -> Card:
    """Return the card with all that is needed; raises _Refused."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise _Refused(
            f"there is no NVIDIA driver here: {error}. Hint: install it, so that `nvidia-smi` runs"
        ) from None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        uuid, free = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).free
    except pynvml.NVMLError as error:
        raise _Refused(
            f"there is no GPU here: {error}. Hint: run this on a node where `nvidia-smi` lists one"
        ) from None
    test, release = options.library or LIBRARIES / "libpenstock-gpu-test.so", LIBRARIES / "libpenstock-gpu.so"
    for library in (test, release):
        if not library.is_file():
            raise _Refused(f"{library} is missing. Hint: unpack the archive again, and run check.py in its folder")
        try:
            ctypes.CDLL(str(library.resolve()))
        except OSError as error:
            raise _Refused(
                f"{library} does not load here: {error}. Hint: pack the kit on a machine of this kind"
            ) from None
    if free < LEAST_FREE_MIB * MIB:
        raise _Refused(
            f"only {free // MIB} MiB of the GPU are free. Hint: end what uses it (`nvidia-smi`); 6 GiB are needed"
        )
    return Card(handle, uuid, test.resolve(), (options.library or release).resolve(), folder, options.quick)


def _judge(card: Card, options: argparse.Namespace) -> int:
    machine = _machine(card)
    for name, text in machine.items():
        print(f"{name}: {text}")
    outcomes = []
    try:
        for outcome in _outcomes(card, options):
            outcomes.append(outcome)
            print("\n".join(page.lines([outcome])), flush=True)
            _write(options.output, machine, outcomes)
    finally:
        card.end_programs()
        remains.clear(card.folder)
    if not outcomes:
        raise _Refused(f"no check has {options.only!r} in its name. Hint: leave --only away")
    print("\n".join(page.summary(outcomes)))
    print(options.output / "result.html")
    return 1 if any(outcome.state is State.OUTSIDE for outcome in outcomes) else 0


def _outcomes(card: Card, options: argparse.Namespace) -> Iterator[Outcome]:
    until = time.monotonic() + 60 * options.minutes
    for name, check in CHECKS.items():
        if not any(word in name for word in options.only.split(",")):
            continue
        subject = (getattr(check, "func", check).__doc__ or "").split("\n\n")[0].replace("\n    ", " ").strip()
        outcome, begun = Outcome(name, subject), time.monotonic()
        if begun > until:
            yield replace(outcome, why=f"the {options.minutes:g} minutes are over")
            continue
        try:
            if card.is_cut and not name.startswith(WHATEVER_IS_CUT):
                raise NotJudged("MIG is on: slices of the card are given whole, and have no shares")
            outcome = replace(outcome, figures=check(card))
        except NotJudged as reason:
            outcome = replace(outcome, why=str(reason))
        except (
            ProgramError,
            PenstockError,
            OSError,
            LookupError,
            ValueError,
            ZeroDivisionError,
            pynvml.NVMLError,
        ) as error:
            outcome = replace(outcome, error=f"{type(error).__name__}: {error}")
        finally:
            card.end_programs()
        if left := remains.clear(card.folder):
            said = f"it leaves processes behind: {', '.join(left)}"
            outcome = replace(outcome, error=f"{outcome.error}; {said}" if outcome.error else said)
        yield replace(outcome, took_s=time.monotonic() - begun)


def _machine(card: Card) -> dict[str, str]:
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    clocks = []
    for kind in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM):
        try:
            clocks.append(str(pynvml.nvmlDeviceGetClockInfo(card.handle, kind)))
        except pynvml.NVMLError:
            clocks.append("–")
    beside = len(pynvml.nvmlDeviceGetComputeRunningProcesses(card.handle))
    return {
        "judged at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "library": f"SHA-256 {hashlib.sha256(card.release.read_bytes()).hexdigest()[:16]}",
        "GPU": str(pynvml.nvmlDeviceGetName(card.handle)),
        "driver": f"{pynvml.nvmlSystemGetDriverVersion()} (CUDA {cuda // 1000}.{cuda % 1000 // 10})",
        "machine": f"{platform.machine()}, Linux {platform.release()}, glibc {platform.libc_ver()[1]}",
        "Python": platform.python_version(),
        "clocks at the beginning": f"{clocks[0]} MHz, memory {clocks[1]} MHz",
        "others on the GPU": f"{beside} processes" + (": figures of time are not to be trusted" if beside else ""),
        "length": "quick: figures of time say nothing of a card" if card.quick else "whole",
    }


def _write(folder: Path, machine: dict[str, str], outcomes: list[Outcome]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "checks": [outcome.document() for outcome in outcomes]}
    (folder / "result.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (folder / "result.html").write_text(page.page(machine, outcomes))


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
