"""Modules of our own that roles bring, loaded as they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROLES = Path(__file__).parents[1] / "roles"


def role_module(path: str) -> ModuleType:
    """Return the module at a path below the folder of roles."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROLES / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
