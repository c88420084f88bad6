"""The GPU of a program, through the driver's own functions: memory in each way, kernels as PTX text, graphs, events."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

BLOCK = 32 << 20
THREADS = 256
GROUPS = 640
"""Groups of threads of a kernel: enough that one fills the card."""

NAMES = ("busy_5us", "busy_2ms", "busy_10ms", "busy_20ms", "busy_400ms", "busy_2000ms")
"""Kernels. The name tells the fake driver how long one runs; on a card so many rounds are set as take that long."""

_BODY = """
.visible .entry {name}(.param .u64 place, .param .u32 rounds)
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
PTX = ".version 7.0\n.target sm_70\n.address_size 64\n" + "".join(_BODY.format(name=name) for name in NAMES)

_UNITS = {"us": 1_000, "ms": 1_000_000}


def nominal_ns(name: str) -> int:
    """Return how long a kernel is meant to run: `busy_2ms` two million."""
    found = re.fullmatch(r"busy_(\d+)(us|ms)", name)
    if not found:
        raise ValueError(name)
    return int(found[1]) * _UNITS[found[2]]


class DriverError(RuntimeError):
    """A function of the driver that failed."""


class Gpu:
    """The first GPU that the program sees, with a context."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        context = ctypes.c_void_p()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of the driver and return its code."""
        return int(getattr(self.library, name)(*arguments))

    def must(self, name: str, *arguments: Any) -> None:
        """Call a function that succeeds; raises DriverError."""
        if code := self.call(name, *arguments):
            raise DriverError(f"{name} fails with {code}")

    # memory

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def plain(self, size: int = BLOCK) -> int:
        """Allocate a block and return the driver's code."""
        return self.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))

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

    def granularity(self) -> int:
        """Return the least size of a block of memory that is made and mapped."""
        wanted, found = (ctypes.c_int * 16)(1, 0, 1, 0), ctypes.c_size_t()
        self.must("cuMemGetAllocationGranularity", ctypes.byref(found), wanted, 0)
        return found.value

    def synchronise(self) -> None:
        """Wait until all work has ended."""
        self.must("cuCtxSynchronize")

    def stream(self) -> ctypes.c_void_p:
        """Make a stream that does not wait for the default one."""
        made = ctypes.c_void_p()
        self.must("cuStreamCreate", ctypes.byref(made), 1)
        return made

    def event(self) -> ctypes.c_void_p:
        """Make an event that takes no time of its own."""
        made = ctypes.c_void_p()
        self.must("cuEventCreate", ctypes.byref(made), 2)
        return made


class Kernels:
    """The kernels of a program; `rounds` says how many of them each takes."""

    def __init__(self, gpu: Gpu, rounds: dict[str, int]) -> None:
        self._gpu = gpu
        module, self._place = ctypes.c_void_p(), ctypes.c_uint64()
        gpu.must("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX.encode()))
        gpu.must("cuMemAlloc_v2", ctypes.byref(self._place), ctypes.c_size_t(4096))
        self._functions = {}
        for name in NAMES:
            function = ctypes.c_void_p()
            gpu.must("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._functions[name] = function
        self._numbers = {name: ctypes.c_uint32(rounds.get(name, 1)) for name in NAMES}
        self._parameters = {
            name: (ctypes.c_void_p * 2)(ctypes.addressof(self._place), ctypes.addressof(number))
            for name, number in self._numbers.items()
        }

    def set_rounds(self, name: str, rounds: int) -> None:
        """Set how many rounds a kernel takes from its next launch on."""
        self._numbers[name].value = rounds

    def launcher(self, name: str, stream: ctypes.c_void_p | None = None) -> Callable[[], None]:
        """Return what launches a kernel on a stream; raises DriverError where the driver refuses."""
        call, shape = self._gpu.library.cuLaunchKernel, (GROUPS, 1, 1, THREADS, 1, 1, 0)
        function, parameters = self._functions[name], self._parameters[name]

        def launch() -> None:
            if code := call(function, *shape, stream, parameters, None):
                raise DriverError(f"cuLaunchKernel fails with {code}")

        return launch

    def graph(self, name: str) -> Callable[[], None]:
        """Return what launches a graph that has one kernel, recorded from a stream as frameworks do."""
        gpu, recorded, graph, runs = self._gpu, self._gpu.stream(), ctypes.c_void_p(), ctypes.c_void_p()
        gpu.must("cuStreamBeginCapture_v2", recorded, 2)
        self.launcher(name, recorded)()
        gpu.must("cuStreamEndCapture", recorded, ctypes.byref(graph))
        gpu.must("cuGraphInstantiateWithFlags", ctypes.byref(runs), graph, ctypes.c_uint64(0))
        return lambda: gpu.must("cuGraphLaunch", runs, None)


def timed(gpu: Gpu, launch: Callable[[], None], count: int) -> float:
    """Return the seconds that so many launches take."""
    begun = time.monotonic()
    for _ in range(count):
        launch()
    gpu.synchronise()
    return time.monotonic() - begun


def calibrate(gpu: Gpu, names: Sequence[str]) -> tuple[dict[str, int], dict[str, float]]:
    """Return rounds of each kernel, and the ns that one takes then on a GPU that nobody else uses.

    What is short is measured in a row of launches, as the time to launch one is part of it; what is long is reckoned
    from a kernel of 20 ms.
    """
    kernels = Kernels(gpu, {})
    long = "busy_20ms"
    launch = kernels.launcher(long)
    launch()
    gpu.synchronise()
    kernels.set_rounds(long, 20_000)
    per_round = min(timed(gpu, launch, 1) for _ in range(3)) / 20_000
    kernels.set_rounds(long, max(1, round(0.02 / per_round)))
    # the clocks of the card have risen by now
    per_round = min(timed(gpu, launch, 1) for _ in range(8)) / max(1, round(0.02 / per_round))
    rounds = {name: max(1, round(nominal_ns(name) / 1e9 / per_round)) for name in NAMES}
    lengths = {}
    for name in names:
        nominal = nominal_ns(name)
        if nominal > nominal_ns(long):
            lengths[name] = rounds[name] * per_round * 1e9
            continue
        kernels.set_rounds(name, rounds[name])
        count = max(2, round(20_000_000 / nominal / 2))
        lengths[name] = min(timed(gpu, kernels.launcher(name), count) for _ in range(3)) / count * 1e9
    return rounds, lengths
