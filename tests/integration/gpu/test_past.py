"""Ways to the driver past the library: another copy, a namespace of its own, libraries bound deeply, callbacks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Bench, Tenant

Make = Callable[..., Tenant]
LIMIT = 64 * MIB
REFUSED = 34

PROGRAM = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
def load(way, path):
    if way == "namespace":
        return ctypes.CDLL("", handle=libc.dlmopen(ctypes.c_long(-1), path.encode(), os.RTLD_NOW))
    return ctypes.CDLL(path, mode=os.RTLD_NOW | (os.RTLD_DEEPBIND if way == "deep" else 0))
def use(driver, size):
    context, place = ctypes.c_void_p(), ctypes.c_uint64()
    return [
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
        driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size)),
    ]
if sys.argv[1] == "both":
    usual = ctypes.CDLL("libcuda.so.1")
    use(usual, 1)
print(json.dumps(use(load(sys.argv[2], sys.argv[3]), int(sys.argv[4]))))
"""

DEEP = """
#define __CUDA_API_VERSION_INTERNAL
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, unsigned long);
int allocate(unsigned long bytes)
{
    void *context;
    unsigned long long place;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    return cuMemAlloc_v2(&place, bytes);
}
"""


def run(share: Tenant, *arguments: str | Path | int) -> list[int]:
    """Let a Python program use a driver; returns the codes of its calls."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, env=share.environment, capture_output=True, text=True, check=True)
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.fixture
def copy(bench: Bench, tmp_path: Path) -> Path:
    """Another copy of the driver, as packages for older drivers bring it."""
    path = tmp_path / "compat/libcuda.so.1"
    path.parent.mkdir()
    path.write_bytes((bench.library / "libcuda.so.1").read_bytes())
    return path


@pytest.mark.parametrize("way", ["path", "namespace"])
def test_a_second_driver_in_a_process_is_refused(tenant: Make, copy: Path, way: str) -> None:
    share = tenant(LIMIT)
    assert run(share, "both", way, copy, 2 * LIMIT) == [REFUSED] * 4
    assert share.machine.peak() <= LIMIT


@pytest.mark.parametrize("way", ["path", "namespace"])
@pytest.mark.parametrize("named", [b"libcuda.so.1", b"libgpux.so.1"])
def test_the_only_driver_of_a_process_is_held_wherever_it_lies(
    tenant: Make, copy: Path, way: str, named: bytes
) -> None:
    share = tenant(LIMIT)
    copy.write_bytes(copy.read_bytes().replace(b"libcuda.so.1\0", named + b"\0"))
    assert run(share, "alone", way, copy, 2 * LIMIT) == [0, 0, 0, OUT_OF_MEMORY]
    assert run(share, "alone", way, copy, LIMIT) == [0, 0, 0, 0]


def test_a_library_that_is_bound_deeply_is_held(tenant: Make, bench: Bench, tmp_path: Path) -> None:
    share = tenant(LIMIT)
    source, library = tmp_path / "deep.c", tmp_path / "libdeep.so"
    source.write_text(DEEP)
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-o", library, source]
    subprocess.run([*command, f"-L{bench.library}", "-l:libcuda.so.1"], check=True)
    program = "import ctypes, os, sys; print(ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_DEEPBIND).allocate("
    program += "ctypes.c_ulong(int(sys.argv[2]))))"
    for size, code in ((2 * LIMIT, OUT_OF_MEMORY), (LIMIT, 0)):
        done = subprocess.run(
            [sys.executable, "-c", program, library, str(size)],
            env=share.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == code


def test_what_the_driver_calls_in_the_middle_of_a_call_is_charged(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        assert client.must(f"endobject 0 {2 * LIMIT}").told == (OUT_OF_MEMORY,)
        assert client.must(f"endobject 0 {LIMIT}").told == (0,)
        assert share.used() == share.machine.used() == LIMIT
        client.must("free 0")
        assert share.used() == 0
