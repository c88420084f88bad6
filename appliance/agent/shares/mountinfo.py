"""Mounts of a container by the kernel's own list: what holds its shares must lie where its programs look for it.

An image may have links where a volume of the user's is mounted, so that the volume comes to lie over a mount of ours.
Nothing else tells of that.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from common.errors import UnavailableError
from common.protocol import Mount

PROC = Path("/proc")
_ENDED = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
"""What the kernel says of a process that is gone, or waits for its parent to notice that it has ended."""
_ESCAPED = re.compile(r"\\([0-7]{3})")
_ABOVE = ("/", "/dev")
"""Mounts of every container below which ours may lie."""


@dataclass(frozen=True)
class Mounted:
    """A line of the kernel's list: a part `root` of the file system on `device`, seen at `point`."""

    device: str
    root: PurePosixPath
    point: PurePosixPath
    read_only: bool


def read(text: str) -> list[Mounted]:
    """Return the mounts that a `/proc/<pid>/mountinfo` lists, in its order."""
    found = []
    for line in text.splitlines():
        _, _, device, root, point, options, *_ = line.split(" ")
        found.append(Mounted(device, _path(root), _path(point), "ro" in options.split(",")))
    return found


def verify(wanted: Sequence[Mount], pid: int, proc: Path = PROC) -> None:
    """Check that a container's programs see all these mounts, and nothing over, in or above them.

    `pid` is the first process of the container; one that has ended sees nothing any more. Raises UnavailableError with
    the first mount that is not as it must be. It may block.
    """
    if not wanted:
        return
    try:
        here = read((proc / "self/mountinfo").read_text())
        inside = read((proc / str(pid) / "mountinfo").read_text())
    except OSError as error:
        if error.errno in _ENDED:
            return
        raise UnavailableError(
            f"the mounts of process {pid} cannot be read: {error.strerror}",
            where="mounts",
            hint="let root run the agent",
        ) from error
    ours = {mount.target for mount in wanted}.union(_ABOVE)
    for mount in wanted:
        if reason := _fault(mount, _seen(Path(mount.source).resolve(), here), inside, ours):
            raise UnavailableError(
                f"the session cannot be held to its GPU shares: {reason}",
                where=mount.target,
                hint="mount volumes elsewhere, and use an image without links on the way to that path",
            )


def _fault(mount: Mount, source: tuple[str, PurePosixPath], inside: Iterable[Mounted], known: Collection[str]) -> str:
    """Return what is wrong with a mount in a container; empty where nothing is. Above and in it may be `known` ones."""
    target = PurePosixPath(mount.target)
    near = [one for one in inside if target.is_relative_to(one.point) or one.point.is_relative_to(target)]
    at = [one for one in near if one.point == target]
    others = [one.point for one in near if one.point != target]
    if not any((one.device, one.root) == source for one in at):
        return "it is not mounted there"
    if len(at) > 1:
        return "something else is mounted over it"
    if strange := [str(point) for point in others if str(point) not in known or others.count(point) > 1]:
        return f"something else is mounted at {strange[0]}"
    if mount.read_only and not at[0].read_only:
        return "it can be written"
    return ""


def _seen(source: Path, here: Iterable[Mounted]) -> tuple[str, PurePosixPath]:
    """Return the device of a path of this machine, and where it is in the file system on that."""
    # of mounts at one point the last one counts
    covering = [one for one in here if PurePosixPath(source).is_relative_to(one.point)]
    deepest = max(reversed(covering), key=lambda one: len(one.point.parts))
    return deepest.device, deepest.root / PurePosixPath(source).relative_to(deepest.point)


def _path(text: str) -> PurePosixPath:
    return PurePosixPath(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), text))
