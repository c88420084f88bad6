"""Tests of the fast part of them."""

from __future__ import annotations

from tests.fakes.cuda.fixtures import bench, tenant

__all__ = ["bench", "tenant"]
