"""Integration tests run side by side, a file on one worker; files that look at the engine's containers take turns."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the group that `--dist loadgroup` keeps on one worker."""
    # an agent takes all containers of the engine with a session's label for its own
    on_engine = {item.path for item in items if "engine" in getattr(item, "fixturenames", ())}
    for item in items:
        item.add_marker(pytest.mark.xdist_group("engine" if item.path in on_engine else _file(item.path)))


def _file(path: Path) -> str:
    return "/".join(path.with_suffix("").parts[-2:])
