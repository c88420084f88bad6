"""Addresses at the edge: the paths of a session's ports. Pure: what others have taken comes in as values."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from common.errors import ConflictError

MAX_BASE_PATH = 255

BASE_URL = re.compile(r"--(?:NotebookApp|ServerApp)\.base_url=(.*)")
_PATH = re.compile(r".+-[0-9]{1,5}")
BASE_PATH = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+){0,6}")


@dataclass(frozen=True)
class Address:
    """A port of a session, and where the edge offers it: `/path/` and, for an app that knows it, `/base_path/`."""

    port: int
    path: str
    base_path: str | None = None


@dataclass(frozen=True)
class Taken:
    """The paths and base paths of the sessions that live, and the names of the projects."""

    paths: Collection[str] = field(default_factory=frozenset)
    base_paths: Collection[str] = field(default_factory=frozenset)
    projects: Collection[str] = field(default_factory=frozenset)

    def has_path(self, path: str) -> bool:
        """Return whether a path would lead somewhere else, or hide another session's base path."""
        return path in self.paths or path in {_first(base) for base in self.base_paths}

    def has_base_path(self, path: str) -> bool:
        """Return whether a base path is that of another session, lies in it or around it, or is hidden by its path."""
        near = any(
            f"{path}/".startswith(f"{known}/") or f"{known}/".startswith(f"{path}/") for known in self.base_paths
        )
        return near or _first(path) in self.paths


def addresses(
    project: str, name: str, ports: Sequence[int], args: Sequence[str], taken: Taken, *, apart: bool = False
) -> list[Address]:
    """Return the addresses of a session's ports; raises ConflictError where others have its base path.

    The path is `NAME-PORT`, `PROJECT-NAME-PORT` where another session has that, or else one that nobody could foresee.
    A project that is kept `apart` from others has never the first: what it gets does not tell what others have.
    The base path that a notebook is told by its arguments goes with its first port. Nobody can keep a session from its
    address: no base path is of the form of a path, and those below the name of a project are that project's own.
    """
    base = base_path(args) if ports else None
    if base and (taken.has_base_path(base) or _is_reserved(base, project, name, ports, taken)):
        raise ConflictError(
            f"the base_url {base} is taken",
            where="args",
            hint=f"choose one below {project}/, such as {project}/{name}, which no other project can have",
        )
    found: list[Address] = []
    for port in ports:
        choices = (f"{name}-{port}", f"{project}-{name}-{port}", f"{name}-{uuid4().hex[:12]}-{port}")
        path = next(choice for choice in choices[apart:] if not taken.has_path(choice))
        found.append(Address(port, path, base if not found and base != path else None))
    return found


def base_path(args: Sequence[str]) -> str | None:
    """Return the base path that the arguments tell a notebook; None where it is the root, or no plain path."""
    found = [match[1].strip("/") for match in map(BASE_URL.fullmatch, args) if match]
    last = found[-1] if found else ""
    return last if len(last) <= MAX_BASE_PATH and BASE_PATH.fullmatch(last) else None


def _is_reserved(base: str, project: str, name: str, ports: Sequence[int], taken: Taken) -> bool:
    """Return whether a base path looks like the path of a session, or lies below the name of another project."""
    first = _first(base)
    if first in {f"{part}-{port}" for part in (name, f"{project}-{name}") for port in ports}:
        return False
    return bool(_PATH.fullmatch(first)) or (first in taken.projects and first != project)


def _first(path: str) -> str:
    return path.partition("/")[0]
