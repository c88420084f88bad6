"""Many processes at once: the limit holds in every moment, the account ends at nothing, and all start quickly."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.cuda.clients import GIB, MIB, Bench, Tenant, build_shim, crowd

Make = Callable[..., Tenant]
LIMIT = GIB


@pytest.fixture(scope="session")
def sanitized(bench: Bench) -> Iterator[Path]:
    with TemporaryDirectory(prefix="penstock-shim-") as folder:
        yield build_shim(Path(folder), "sanitized")


def test_eight_processes_with_a_hundred_thousand_random_operations_never_exceed_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as watcher:
        for answers in crowd(share, 8, f"churn 100000 SEED {LIMIT // 16}"):
            assert all(answer.code == 0 for answer in answers)
            succeeded, refused = answers[-1].told
            # four in ten are refused, and more where those that hold most of the memory are not let run
            assert succeeded > 25_000
            assert refused > 100
        assert share.machine.peak() <= LIMIT
        assert share.machine.peak() > LIMIT - 64 * MIB, "the limit was never reached"
        assert share.used() == share.machine.used() == 0
        assert watcher.must("info").told == (LIMIT, LIMIT)


@pytest.mark.parametrize("checker", ["address", "thread"])
def test_sanitizers_find_nothing_in_random_operations(
    tenant: Make, bench: Bench, sanitized: Path, checker: str
) -> None:
    library = sanitized.with_name(f"libpenstock-gpu-{checker}.so")
    runtimes = {"address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}[checker]
    found = [
        Path(
            subprocess.run(
                ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        for name in runtimes
    ]
    options = {
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0",
    }
    share = tenant(LIMIT, preload=[*found, library], settings=options)
    for answers in crowd(share, 2, f"churn 20000 SEED {LIMIT // 8}", "kernel 0 busy_10us", "spin 0 200 4 0"):
        assert all(answer.code == 0 for answer in answers)
    assert share.machine.peak() <= LIMIT
    assert share.used() == share.machine.used() == 0


def test_three_hundred_processes_start_at_the_same_time(tenant: Make) -> None:
    count = 300

    def start(share: Tenant) -> tuple[float, float]:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        assert all(answers[-1].code == 0 for answers in crowd(share, count, "malloc 0 1000000"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.monotonic() - begun, used / count

    wall, cpu = start(tenant(8 * GIB))
    bare, _ = start(tenant(8 * GIB, preload=()))
    # each is a second of a machine that has a core for every process; here they share what there is
    assert cpu < 0.1
    assert wall < max(10 * bare, count / (os.cpu_count() or 1) * 0.1)
