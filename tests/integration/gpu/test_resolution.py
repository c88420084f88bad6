"""Whoever asks for a function gets the driver's answer, with our wrapper in the place of exactly what we hook."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fakes.cuda.build import driver_entries, headers
from tests.fakes.cuda.clients import ROOT, Bench, Tenant

Make = Callable[..., Tenant]
SHIM = ROOT / "appliance" / "gpu" / "shim"
RECORDED = ROOT.parent / "shared" / "data" / "cudart13_queries.csv"
ASK = ROOT / "tests" / "fakes" / "cuda" / "ask.py"
HOOKS = frozenset(re.findall(r"^HOOK\((\w+),", (SHIM / "hooks.def").read_text(), re.MULTILINE))


def queries() -> list[str]:
    """The recorded queries of the CUDA runtime where they are at hand, else the same kind made of NVIDIA's typedefs."""
    if RECORDED.exists():
        lines = RECORDED.read_text().splitlines()
        return [line for line in lines if not line.startswith(("#", "symbol"))]
    return [f"{entry.symbol},{entry.version},{hex(2 * bool(entry.variant))}" for entry in driver_entries()]


def ask(tenant: Tenant, lines: Sequence[str], *arguments: str) -> list[list[str]]:
    """What the program gets: code, status, library and symbol for each line."""
    command = [sys.executable, str(ASK), *arguments]
    result = subprocess.run(
        command, input="\n".join(lines), env=tenant.environment, capture_output=True, text=True, check=True
    )
    return [line.split() for line in result.stdout.splitlines()]


def assert_same_but_hooked(shown: list[list[str]], real: list[list[str]], lines: Sequence[str], bench: Bench) -> None:
    """The shim's answers are the driver's, save that hooked functions lead into the shim."""
    for line, mine, other in zip(lines, shown, real, strict=True):
        assert mine[:2] == other[:2], line
        if other[3] in HOOKS:
            assert mine[2] == bench.shim.name, f"{line} is not hooked"
        else:
            assert mine == other, line


@pytest.mark.parametrize("versions", ["recorded", "newest", "all flags"])
def test_queries_get_the_driver_status_and_wrappers_exactly_of_what_is_hooked(
    tenant: Make, bench: Bench, versions: str
) -> None:
    lines = queries()
    if versions == "newest":
        lines = [f"{line.split(',')[0]},13050,{line.split(',')[2]}" for line in lines]
    elif versions == "all flags":
        lines = [
            f"{symbol},{version},{flag}" for symbol, version, _ in (x.split(",") for x in lines) for flag in range(3)
        ]
    share = tenant(1 << 30)
    shown, real = ask(share, lines, "queries"), ask(tenant(1 << 30, preload=()), lines, "queries")
    assert_same_but_hooked(shown, real, lines, bench)
    hooked = {answer[3] for answer in real} & HOOKS
    assert {"cuMemAlloc_v2", "cuLaunchKernel", "cuGraphAddNode_v2"} <= hooked | {"cuGraphAddNode_v2"}
    if versions != "newest":
        assert {"cuLaunchKernel_ptsz", "cuMemAllocAsync_ptsz"} <= hooked


@pytest.mark.parametrize(
    "line",
    [
        ",0,0x0",
        "cuNothingOfTheKind,12000,0x0",
        "cuMemAlloc,99999,0x0",
        "cuLaunchKernelEx,11000,0x0",
        "cuMemAlloc,3020,0x7",
    ],
    ids=["empty", "unknown", "newer than the driver", "older than the function", "flags that are none"],
)
def test_odd_queries_get_what_the_driver_says(tenant: Make, line: str) -> None:
    [shown], [real] = ask(tenant(1), [line], "queries"), ask(tenant(1, preload=()), [line], "queries")
    assert shown == real
    assert shown[2] == "-"


def test_every_function_of_the_driver_is_found_by_its_name(tenant: Make, bench: Bench) -> None:
    names = sorted({entry.name for entry in driver_entries()})
    shown, real = (
        ask(tenant(1), names, "names", "libcuda.so.1"),
        ask(tenant(1, preload=()), names, "names", "libcuda.so.1"),
    )
    assert_same_but_hooked(shown, real, names, bench)
    assert {answer[3] for answer in real} >= {"cuMemAlloc_v2", "cuMemAllocAsync_ptsz"}


def test_a_driver_older_than_a_function_stays_without_it(tenant: Make) -> None:
    lines = queries()
    old = {"FAKE_GPU_CUDA": "11040"}
    shown = ask(tenant(1, settings=old), lines, "queries")
    real = ask(tenant(1, settings=old, preload=()), lines, "queries")
    assert [answer[:2] for answer in shown] == [answer[:2] for answer in real]
    assert any(answer[0] == "1" for answer in real)


def test_the_cuda_runtime_asks_the_same_with_the_shim_as_without(tenant: Make, tmp_path: Path) -> None:
    runtime = next((headers().parent / "lib").glob("libcudart.so.*"))
    program = f"import ctypes; print(ctypes.CDLL({str(runtime)!r}).cudaFree(None))"
    asked = []
    for number, preload in enumerate([None, ()]):
        log = tmp_path / f"queries-{number}"
        share = tenant(1, preload=preload, settings={"FAKE_GPU_QUERIES": str(log)})
        result = subprocess.run([sys.executable, "-c", program], env=share.environment, capture_output=True, check=True)
        asked.append((result.stdout, log.read_text().splitlines()[-400:]))
    # it stops behind its queries, for the fake driver has no private tables
    assert asked[0] == asked[1]
    assert len(asked[0][1]) == 400
