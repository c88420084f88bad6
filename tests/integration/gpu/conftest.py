"""Tests of the shim on the fake driver."""

from __future__ import annotations

from tests.fakes.cuda.fixtures import bench, release, tenant

__all__ = ["bench", "release", "tenant"]
