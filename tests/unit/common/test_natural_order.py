"""Order of names as people count."""

from __future__ import annotations

from common.natural_order import natural


def test_numbers_in_names_are_compared_as_numbers() -> None:
    ordered = ["", "7", "12", "node", "node01", "node1", "node2", "node2-gpu9", "node2-gpu10", "node10"]
    ordered += ["python:3.9", "python:3.11"]
    assert sorted(sorted(ordered), key=natural) == ordered
