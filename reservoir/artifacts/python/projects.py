"""The wheels of local projects: locked by what the projects require, made by a build."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

from common import process
from common.errors import InputError, ProcessError
from reservoir.artifacts.kind import Order, Resolving
from reservoir.artifacts.python import pyproject, wheels
from reservoir.contents.artifact import PythonArtifact, PythonMetadata
from reservoir.contents.lock import LockedProject
from reservoir.download.cache import WORK
from reservoir.download.indexes import Indexes
from reservoir.manifest.model import MACHINES, Target

# wheels carry no time of their own: the earliest that a zip file can say
WHEEL_TIME = 315532800


def locked(resolving: Resolving) -> list[LockedProject]:
    """Return the local projects of a manifest as a lock has them."""
    folder = resolving.path.parent
    return [
        LockedProject(
            name=pyproject.name(folder / project.path),
            path=project.path,
            extras=list(project.extras),
            dependencies=pyproject.dependencies(folder / project.path, project.extras),
        )
        for project in resolving.manifest.python.projects
    ]


def make(order: Order) -> list[PythonArtifact]:
    """Build the wheels of the local projects into the cache."""
    artifacts = []
    for project in order.locked.projects:
        targets = [target for target in order.manifest.targets if target.python]
        own, unfit = _make(order, project, targets)
        if own.targets or not unfit:
            artifacts.append(own)
        # what was built for this machine alone is built for each other one as well
        for arch in sorted({target.arch for target in unfit}):
            mine = [target for target in unfit if target.arch == arch]
            other, still_unfit = _make(order, project, mine, arch)
            if still_unfit:
                names = ", ".join(target.name for target in still_unfit)
                raise InputError(
                    f"what was built here, {other.filename}, does not run on {names}",
                    where=project.path,
                    hint="build on a machine of the target's architecture, or leave target or project out",
                )
            artifacts.append(other)
    return artifacts


def build(path: Path, folder: Path, indexes: Indexes, timestamp: int, arch: str = "") -> Path:
    """Build the wheel of the project at `path` into `folder`, bit by bit the same for the same files and timestamp.

    A project that can build for another architecture than this machine's learns `arch` from its environment.
    """
    command = [wheels.uv(), "build", "--wheel", "--out-dir", str(folder), *indexes.options, str(path)]
    env = indexes.env | {"SOURCE_DATE_EPOCH": str(timestamp)}
    if arch:
        env["PENSTOCK_WHEEL_MACHINE"] = MACHINES[arch]
    try:
        # what the project is built with is on this machine after the first time: nothing needs to be asked for
        process.run([*command, "--offline"], env=env)
    except ProcessError:
        process.run(command, env=env, hint="mend the project's build")
    return max(folder.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns)


def _make(
    order: Order, project: LockedProject, targets: Sequence[Target], arch: str = ""
) -> tuple[PythonArtifact, list[Target]]:
    """Build the wheel of a project, for this machine or another `arch`; return it and the targets it does not fit."""
    order.progress(f"build the wheel of {project.name}{arch and f' for {arch}'}")
    with tempfile.TemporaryDirectory(prefix=WORK, dir=order.cache.root) as folder:
        path = (order.folder / project.path).resolve()
        wheel = build(path, Path(folder), order.indexes(), WHEEL_TIME, arch)
        name, version, _, _ = parse_wheel_filename(wheel.name)
        blob, size = order.cache.add(wheel)
    fit = [target for target in targets if wheels.runs_on(wheel.name, target)]
    artifact = PythonArtifact(
        name=name,
        version=str(version),
        filename=wheel.name,
        sha256=blob,
        size=size,
        origin=f"built from {project.path}",
        targets=[target.name for target in fit],
        metadata=PythonMetadata(extras=project.extras),
    )
    return artifact, [target for target in targets if target not in fit]
