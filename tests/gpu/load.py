"""A program that uses a GPU through the driver alone, as its arguments say; it prints JSON lines.

show                  the memory that it sees
fill plain|async|virtual   allocates until there is no more, and tells how much that was
hold BYTES            allocates, says so and waits until it is killed
loop SECONDS          computes without a pause; tells how many kernels were done
resolve               tells which library the ways to a function lead to
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = 32 << 20
SEEN = 0.3
"""Seconds for which a full GPU stays so, that those see it who watch it."""
GRID, THREADS = 640, 256
KERNEL = "busy_2ms"
"""Its name tells the fake driver how long it runs; on a GPU the number of its rounds is set to take as long."""

PTX = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {KERNEL}(.param .u64 place, .param .u32 rounds)
{{
    .reg .pred %more;
    .reg .f32 %a, %b;
    .reg .b32 %left;
    .reg .b64 %to;
    ld.param.u64 %to, [place];
    ld.param.u32 %left, [rounds];
    mov.f32 %a, 0f3F800001;
    mov.f32 %b, 0f3F7FFFFF;
again:
    fma.rn.f32 %a, %a, %b, %b;
    fma.rn.f32 %b, %b, %a, %a;
    fma.rn.f32 %a, %a, %b, %b;
    fma.rn.f32 %b, %b, %a, %a;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra again;
    st.global.f32 [%to], %a;
    ret;
}}
"""


class Gpu:
    """The first GPU, with a context."""

    def __init__(self) -> None:
        self.driver: Any = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        context = ctypes.c_void_p()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of the driver and return its code."""
        return int(getattr(self.driver, name)(*arguments))

    def must(self, name: str, *arguments: Any) -> None:
        """Call a function that succeeds."""
        if code := self.call(name, *arguments):
            raise SystemExit(f"{name} fails with {code}")

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def plain(self) -> int:
        """Allocate a block and return the driver's code."""
        return self.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(BLOCK))

    def ordered(self) -> int:
        """Allocate a block in the order of a stream."""
        code = self.call("cuMemAllocAsync", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(BLOCK), None)
        return code or self.call("cuCtxSynchronize")

    def virtual(self) -> int:
        """Make a block of memory and map it."""
        # CUmemAllocationProp: pinned, no handle type, location device 0
        wanted = (ctypes.c_int * 16)(1, 0, 1, 0)
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        size = ctypes.c_size_t(BLOCK)
        if code := self.call("cuMemCreate", ctypes.byref(handle), size, wanted, ctypes.c_uint64(0)):
            return code
        nowhere = (ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.must("cuMemAddressReserve", ctypes.byref(address), size, *nowhere)
        return self.call("cuMemMap", address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))


def show(gpu: Gpu) -> dict[str, int]:
    """Return the memory that a program sees."""
    free, total = gpu.memory()
    return {"free": free, "total": total}


def fill(gpu: Gpu, how: str) -> dict[str, int]:
    """Allocate until the driver refuses; returns the bytes and the code of the refusal."""
    allocate: Callable[[], int] = {"plain": gpu.plain, "async": gpu.ordered, "virtual": gpu.virtual}[how]
    held = 0
    while not (code := allocate()):
        held += BLOCK
    time.sleep(SEEN)
    return {"held": held, "code": code, "free": gpu.memory()[0]}


def loop(gpu: Gpu, seconds: float) -> dict[str, float]:
    """Compute for so many seconds; returns how many kernels were done and how long it took."""
    module, function, place = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    gpu.must("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX.encode()))
    gpu.must("cuModuleGetFunction", ctypes.byref(function), module, KERNEL.encode())
    gpu.must("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(4096))

    def launch(rounds: int, count: int) -> float:
        number = ctypes.c_uint32(rounds)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(place), ctypes.addressof(number))
        begun = time.monotonic()
        for _ in range(count):
            gpu.must("cuLaunchKernel", function, GRID, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        gpu.must("cuCtxSynchronize")
        return time.monotonic() - begun

    launch(1000, 1)
    # the shortest of some: others may compute at the same time
    rounds = max(1, round(20_000 * 0.002 / min(launch(20_000, 1) for _ in range(20))))
    print(json.dumps({"rounds": rounds}), flush=True)
    rounds = int(sys.stdin.readline() or rounds)
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        launch(rounds, 8)
        count += 8
    return {"kernels": count, "seconds": time.monotonic() - begun}


class _Info(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p if "at" in name else ctypes.c_char_p) for name in ("file", "at", "name", "at2")
    )


def resolve(gpu: Gpu) -> dict[str, str]:
    """Return the files of the libraries in which dlsym and cuGetProcAddress find an allocator."""

    def file(address: int | None) -> str:
        found = _Info()
        ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found))
        return Path((found.file or b"-").decode()).name

    pointer, status = ctypes.c_void_p(), ctypes.c_int()
    flags = ctypes.c_uint64(0)
    gpu.must("cuGetProcAddress_v2", b"cuMemAlloc", ctypes.byref(pointer), 12000, flags, ctypes.byref(status))
    named = ctypes.cast(gpu.driver.cuMemAlloc_v2, ctypes.c_void_p).value
    return {"dlsym": file(named), "cuGetProcAddress_v2": file(pointer.value)}


def main() -> None:
    """Do what the arguments say."""
    what, *rest = sys.argv[1:]
    gpu = Gpu()
    if what == "hold":
        gpu.must("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(rest[0])))
        print(json.dumps({"held": int(rest[0])}), flush=True)
        time.sleep(3600)
    elif what == "loop":
        print(json.dumps(loop(gpu, float(rest[0]))), flush=True)
    else:
        print(json.dumps({"show": show, "resolve": resolve, "fill": fill}[what](gpu, *rest)), flush=True)  # type: ignore[operator]


if __name__ == "__main__":
    main()
