"""Python packages: the closure for a target by uv, with wheels only, from the machine's own package indexes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from common import process
from common.errors import InputError, ProcessError, UnavailableError
from reservoir import settings
from reservoir.manifest import credentials
from reservoir.manifest.model import Project, Target

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# the newest C library (2.x) that uv knows; what runs on it runs on later ones
UV_NEWEST_GLIBC = 40
LEGACY_PLATFORMS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Indexes:
    """Where this machine takes Python packages from, as pip is configured on it."""

    index: str | None
    extra: list[str]
    links: list[str]
    offline: bool
    certificates: str | None

    @property
    def options(self) -> list[str]:
        """Return the same for uv; all indexes count alike, as they do for pip."""
        words = ["--index-strategy", "unsafe-best-match"]
        words += ["--default-index", self.index] if self.index else []
        words += [word for url in self.extra for word in ("--index", url)]
        words += [word for place in self.links for word in ("--find-links", place)]
        return words + (["--no-index"] if self.offline else [])

    @property
    def addresses(self) -> list[str]:
        """Return every address, with the user and password that it may carry."""
        return [*([self.index] if self.index else []), *self.extra, *self.links]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for uv."""
        return settings.environment(SSL_CERT_FILE=self.certificates) if self.certificates else settings.environment()


@dataclass(frozen=True)
class Wheel:
    """The wheel that a target installs; `url` is where it lies (`file:` for one on this machine)."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str


def machine_indexes() -> Indexes:
    """Return what `pip config list` says on this machine."""
    try:
        out = process.run([sys.executable, "-m", "pip", "config", "list"])
    except ProcessError as error:
        raise UnavailableError("pip is not installed", where="pip", hint="install penstock[build]") from error
    values: dict[str, str] = {}
    # pip's own order of precedence: the environment last
    for section in ("global", "install", ":env:"):
        for line in out.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                values[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return Indexes(
        index=values.get("index-url"),
        extra=values.get("extra-index-url", "").split(),
        links=values.get("find-links", "").split(),
        offline=values.get("no-index", "").lower() in ("1", "true", "yes", "on"),
        certificates=values.get("cert"),
    )


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
            hint="correct the requirement, or take a version that has a wheel for the target",
        ) from error
    locals_ = {project_name(path) for _, path in projects}
    packages = tomllib.loads(out).get("packages", [])
    order = {tag: rank for rank, tag in enumerate(_tags(target))}
    return [_best(package, order, target, where) for package in packages if package["name"] not in locals_]


def project_name(path: Path) -> str:
    """Return the normalized name of the project in a folder."""
    return canonicalize_name(_project_table(path)["name"])


def project_dependencies(path: Path, extras: Sequence[str]) -> str:
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
    every = _with_named(extras, optional, project_name(path), str(path / "pyproject.toml"))
    wanted = [table.get("requires-python", ""), table.get("dependencies", []), {e: optional[e] for e in every}]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def build(path: Path, folder: Path, indexes: Indexes, timestamp: int, arch: str = "") -> Path:
    """Build the wheel of the project at `path` into `folder`, bit by bit the same for the same files and timestamp.

    A project that can build for another architecture than this machine's learns `arch` from its environment.
    """
    command = [uv(), "build", "--wheel", "--quiet", "--out-dir", str(folder), *indexes.options, str(path)]
    env = indexes.env | {"SOURCE_DATE_EPOCH": str(timestamp)}
    if arch:
        env["PENSTOCK_WHEEL_MACHINE"] = MACHINES[arch]
    try:
        # what the project is built with is on this machine after the first time: nothing needs to be asked for
        process.run([*command, "--offline"], env=env)
    except ProcessError:
        process.run(command, env=env, hint="mend the project's build")
    return max(folder.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns)


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
    return f"{project_name(path)}{extras} @ {path.resolve().as_uri()}"


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
            hint="take a version that has one",
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
