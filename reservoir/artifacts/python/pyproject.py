"""Local Python projects as their `pyproject.toml` describes them."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from common.errors import InputError


def name(path: Path) -> str:
    """Return the normalized name of the project in a folder."""
    return canonicalize_name(_project_table(path)["name"])


def dependencies(path: Path, extras: Sequence[str]) -> str:
    """Return a hash of what the project in a folder requires with these extras."""
    table = _project_table(path)
    optional = table.get("optional-dependencies", {})
    unknown = [extra for extra in extras if extra not in optional]
    if unknown:
        raise InputError(
            f"the project has no extra named {', '.join(unknown)}",
            where=str(path / "pyproject.toml"),
            hint=f"use some of: {', '.join(optional)}",
        )
    every = _with_named(extras, optional, name(path), str(path / "pyproject.toml"))
    wanted = [table.get("requires-python", ""), table.get("dependencies", []), {e: optional[e] for e in every}]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def _with_named(extras: Sequence[str], optional: Mapping[str, list[str]], project: str, where: str) -> list[str]:
    """Return the extras of a project with those that they name themselves, as in `all = ["project[a,b]"]`."""
    found, waiting = list[str](), list(extras)
    while waiting:
        extra = waiting.pop(0)
        if extra in found or extra not in optional:
            continue
        found.append(extra)
        try:
            wanted = [Requirement(text) for text in optional[extra]]
        except InvalidRequirement as error:
            raise InputError(f"the extra {extra}: {error}", where=where, hint="mend pyproject.toml") from error
        waiting += [name for one in wanted if canonicalize_name(one.name) == project for name in sorted(one.extras)]
    return found


def _project_table(path: Path) -> dict[str, Any]:
    """Return the `[project]` table of a folder's pyproject.toml."""
    file = path / "pyproject.toml"
    try:
        table = tomllib.loads(file.read_text())["project"]
    except FileNotFoundError as error:
        raise InputError("there is no Python project", where=str(file), hint="correct the path") from error
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise InputError(f"not a project file: {error}", where=str(file), hint="mend pyproject.toml") from error
    if not isinstance(table, dict):
        raise InputError("`project` is not a table", where=str(file), hint="mend pyproject.toml")
    return table
