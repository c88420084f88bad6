"""Python packages: the closure for a target by uv, with wheels only, from the machine's own package indexes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from common import process
from common.errors import InputError, ProcessError, UnavailableError
from reservoir.artifacts.python import pyproject
from reservoir.download.indexes import Indexes
from reservoir.manifest import credentials
from reservoir.manifest.model import MACHINES, Project, Target

# the newest C library (2.x) that uv knows; what runs on it runs on later ones
UV_NEWEST_GLIBC = 40
WITH_WHEEL = "take a version that has a wheel for the target, or let one be built of its sources under `python.sdists`"
LEGACY_PLATFORMS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Wheel:
    """The wheel that a target installs; `url` is where it lies (`file:` for one on this machine)."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str


def closure(
    requirements: Sequence[str], projects: Sequence[tuple[Project, Path]], target: Target, indexes: Indexes, where: str
) -> list[Wheel]:
    """Return the wheel of every package that the requirements and the local projects need on the target.

    The projects themselves are not among them. Raises InputError where no set of wheels fits.
    """
    lines = [*requirements, *(_local_requirement(project, path) for project, path in projects)]
    if not lines:
        return []
    words = ["compile", "-", "--format", "pylock.toml", "--only-binary", ":all:", "--no-header", "--quiet"]
    words += ["--python-version", target.interpreter, "--python-platform", _uv_platform(target)]
    try:
        out = process.run([uv(), "pip", *words, *indexes.options], env=indexes.env, stdin="\n".join(lines) + "\n")
    except ProcessError as error:
        raise InputError(
            f"no set of wheels for Python {target.interpreter} on {target.release} {target.arch} fits: "
            + re.sub(r"\s+", " ", error.problems[0].reason.partition("\n")[2]),
            where=where,
            hint=f"correct the requirement, or {WITH_WHEEL}",
        ) from error
    locals_ = {pyproject.name(path) for _, path in projects}
    packages = tomllib.loads(out).get("packages", [])
    order = {tag: rank for rank, tag in enumerate(_tags(target))}
    return [_best(package, order, target, where) for package in packages if package["name"] not in locals_]


def runs_on(filename: str, target: Target) -> bool:
    """Say whether the target's Python can install the wheel of that name."""
    return not parse_wheel_filename(filename)[3].isdisjoint(_tags(target))


def uv() -> str:
    """Return the path of uv; raises UnavailableError where it is missing."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise UnavailableError("uv is not installed", where="uv", hint="install penstock[build]") from error


def _local_requirement(project: Project, path: Path) -> str:
    extras = f"[{','.join(project.extras)}]" if project.extras else ""
    return f"{pyproject.name(path)}{extras} @ {path.resolve().as_uri()}"


def _best(package: dict[str, Any], order: dict[Tag, int], target: Target, where: str) -> Wheel:
    """Return the wheel of a locked package that the target's pip would choose."""
    ranked = []
    for wheel in package.get("wheels", []):
        url = credentials.public(wheel.get("url", "")) or Path(wheel["path"]).resolve().as_uri()
        filename = unquote(urlsplit(url).path.rpartition("/")[2])
        _, version, number, tags = parse_wheel_filename(filename)
        ranks = [order[tag] for tag in tags if tag in order]
        if ranks and "sha256" in wheel.get("hashes", {}):
            best = Wheel(package["name"], str(version), filename, url, wheel["hashes"]["sha256"])
            ranked.append(((min(ranks), [-part if isinstance(part, int) else 0 for part in number[:1]]), best))
    if not ranked:
        raise InputError(
            f"{package['name']} {package.get('version', '')} has no wheel for Python {target.interpreter} "
            f"on {target.release} {target.arch}",
            where=where,
            hint=WITH_WHEEL,
        )
    return min(ranked, key=lambda item: item[0])[1]


def _tags(target: Target) -> Iterator[Tag]:
    """Yield what the target's Python can install, best first."""
    version = tuple(int(part) for part in target.interpreter.split("."))
    machine = MACHINES[target.arch]
    minor = int(target.c_library.split(".")[1])
    platforms = []
    for step in range(minor, 4, -1):
        platforms.append(f"manylinux_2_{step}_{machine}")
        if step in LEGACY_PLATFORMS:
            platforms.append(f"{LEGACY_PLATFORMS[step]}_{machine}")
    platforms.append(f"linux_{machine}")
    yield from cpython_tags(version, platforms=platforms)
    yield from compatible_tags(version, interpreter=f"cp{version[0]}{version[1]}", platforms=platforms)


def _uv_platform(target: Target) -> str:
    minor = min(int(target.c_library.split(".")[1]), UV_NEWEST_GLIBC)
    return f"{MACHINES[target.arch]}-manylinux_2_{minor}"
