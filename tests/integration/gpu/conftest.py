"""Tests of the shim on the fake driver."""

from __future__ import annotations

from tests.fakes.cuda.fixtures import bench, tenant

__all__ = ["bench", "tenant"]
