"""The fake driver and the fake NVML: `libcuda.so.1` and `libnvidia-ml.so.1` of a machine that `machine.h` describes."""

from __future__ import annotations

from tests.fakes.cuda.build import build, headers
from tests.fakes.cuda.machine import Limit, Machine, Use

__all__ = ["Limit", "Machine", "Use", "build", "headers"]
