"""Wheels of packages that come as sources alone: built where a manifest says so, without a network, and recorded."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
from packaging.utils import InvalidSdistFilename, parse_sdist_filename

from common import files, process
from common.errors import ConflictError, InputError, ProcessError
from reservoir import settings
from reservoir.artifacts.kind import Order, Resolving
from reservoir.artifacts.python import wheels
from reservoir.artifacts.python.projects import WHEEL_TIME
from reservoir.contents.lock import LockedFile, LockedSdist
from reservoir.download import fetch
from reservoir.download.cache import WORK, Cache, link_or_copy
from reservoir.download.indexes import Indexes
from reservoir.manifest import credentials
from reservoir.manifest.model import MACHINES, Sdist, Target

# counts up when the same sources are built otherwise
BUILDING = 1
# without a network; what a build starts ends with it
ISOLATED = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
HINT = "mend `build`, the requirements that it is built with, or take a version that has a wheel"


def locked(resolving: Resolving, known: Indexes) -> list[LockedSdist]:
    """Build what the manifest wants built; return what it was built from, and the wheels that came of it."""
    found = []
    for index, sdist in enumerate(resolving.manifest.python.sdists):
        where = resolving.where(f"python.sdists[{index}]")
        with fetch.client(known.certificates, [*known.addresses, sdist.url]) as http:
            source = _file(http, resolving.cache, _filename(sdist.url, where), sdist.url, sdist.sha256)
            tools = [
                _file(http, resolving.cache, tool.filename, tool.url, tool.sha256)
                for tool in _tools(sdist, known, where)
            ]
        resolving.progress(f"build {source.filename}")
        found.append(LockedSdist(source=source, tools=tools, wheel=_wheel(resolving.cache, source, tools, where)))
    return found


def offered(resolving: Resolving, known: Indexes, built: Sequence[LockedSdist]) -> Indexes:
    """Return the indexes with the wheels that were built among what they offer."""
    if not built:
        return known
    folder = resolving.cache.root / "sdists" / _hash([one.wheel.sha256 for one in built])
    folder.mkdir(parents=True, exist_ok=True)
    for one in built:
        if not (folder / one.wheel.filename).exists():
            link_or_copy(resolving.cache.path(one.wheel.sha256), folder / one.wheel.filename)
    return replace(known, links=[*known.links, str(folder)])


def again(order: Order, sdist: LockedSdist) -> None:
    """Build a wheel that the cache lacks; raises ConflictError where this machine makes another one of it."""
    with order.client() as http:
        for one in (sdist.source, *sdist.tools):
            fetch.fetch(http, order.cache, one.url, sha256=one.sha256, size=one.size, note=order.note)
    order.progress(f"build {sdist.source.filename}")
    made = _wheel(order.cache, sdist.source, sdist.tools, sdist.source.filename)
    if made.sha256 != sdist.wheel.sha256:
        raise ConflictError(
            f"built here, it is another wheel than the locked one: {made.filename}",
            where=sdist.source.filename,
            hint="build where the lock was made, or lock on this machine",
        )


def _tools(sdist: Sdist, known: Indexes, where: str) -> list[wheels.Wheel]:
    """Return the wheels that it is built with, for this machine's own Python."""
    _, glibc = platform.libc_ver()
    here = {machine: arch for arch, machine in MACHINES.items()}.get(platform.machine())
    machine = Target.model_validate(
        {
            "name": "this-machine",
            "release": "bookworm",
            "arch": here,
            "python": f"3.{sys.version_info.minor}",
            "glibc": glibc,
        }
    )
    return wheels.closure(sdist.build, [], machine, known, f"{where}.build")


def _file(http: httpx.Client, cache: Cache, filename: str, url: str, sha256: str) -> LockedFile:
    size = fetch.known_size(http, cache, url, sha256)
    fetch.fetch(http, cache, url, sha256=sha256, size=size)
    return LockedFile(filename=filename, url=credentials.public(url), sha256=sha256, size=size)


def _wheel(cache: Cache, source: LockedFile, tools: Sequence[LockedFile], where: str) -> LockedFile:
    """Return the wheel that is made of sources, from an earlier build of the same where there was one."""
    parts = [BUILDING, source.sha256, sorted(tool.sha256 for tool in tools), platform.machine(), sys.version]
    record = cache.root / "sdists" / f"{_hash(parts)}.json"
    if record.is_file():
        made = LockedFile.model_validate_json(record.read_text())
        if cache.has(made.sha256, made.size):
            return made.model_copy(update={"url": f"built from {source.url}"})
    with tempfile.TemporaryDirectory(prefix=WORK, dir=cache.root) as folder:
        path = _build(cache, source, tools, Path(folder), where)
        filename = path.name
        sha256, size = cache.add(path)
    made = LockedFile(filename=filename, url=f"built from {source.url}", sha256=sha256, size=size)
    record.parent.mkdir(exist_ok=True)
    files.write(record, made.model_dump_json())
    return made


def _build(cache: Cache, source: LockedFile, tools: Sequence[LockedFile], folder: Path, where: str) -> Path:
    """Build a wheel in an environment of its own, where the user's settings and the network are not."""
    for one in (source, *tools):
        link_or_copy(cache.path(one.sha256), folder / one.filename)
    env = settings.bare_environment(
        HOME=str(folder), SOURCE_DATE_EPOCH=str(WHEEL_TIME), PYTHONHASHSEED="0", UV_CACHE_DIR=str(folder / "uv")
    )
    python, out = folder / "env/bin/python", folder / "out"
    alone = ["--offline", "--no-config"]
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    installed: list[str | Path] = ["--python", python, "--no-index", "--no-deps"]
    installed += [folder / tool.filename for tool in tools]
    wanted: list[str | Path] = ["--wheel", "--no-build-isolation", "--python", python, "--out-dir", out]
    try:
        process.run([wheels.uv(), "venv", "--quiet", *alone, "--python", sys.executable, folder / "env"], env=env)
        if tools:
            process.run([wheels.uv(), "pip", "install", "--quiet", *alone, *installed], env=env)
        build = [wheels.uv(), "build", *alone, *wanted, folder / source.filename]
        process.run([*ISOLATED, *rights, *build], env=env)
        (wheel,) = out.glob("*.whl")
    except (ProcessError, ValueError) as error:
        reason = error.problems[0].reason if isinstance(error, ProcessError) else "no wheel came of it"
        raise InputError(f"{source.filename} cannot be built: {reason}", where=where, hint=HINT) from error
    return wheel


def _filename(url: str, where: str) -> str:
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    try:
        parse_sdist_filename(name)
    except InvalidSdistFilename as error:
        hint = "give the address of a file such as name-1.0.tar.gz"
        raise InputError(f"{name!r} is not the name of sources", where=where, hint=hint) from error
    return name


def _hash(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
