"""Cores that a container runs on. Pure but for `of_node` and `draw`.

A program counts the cores that it may run on, not its quota of time. So that it starts as many threads as it was
granted cores, each container gets a set of cores. Sets may overlap where fractions were granted. Programs that ask the
C library for the cores of the machine, or read of them in /proc, are shown that set by files in place of the kernel's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from appliance.agent.environment import MILLI, cores_begun
from common.errors import InputError, UnavailableError

ONLINE = "/sys/devices/system/cpu/online"
"""Where the C library counts the cores for `sysconf(_SC_NPROCESSORS_ONLN)`."""
CPUINFO = "/proc/cpuinfo"
_KEEP_S = 24 * 3600.0
_PROCESSOR = re.compile(r"^processor\s*:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class CoreGrant:
    """The cores of one container and how much of them it may use together, in thousandths of a core."""

    cores: tuple[int, ...] = ()
    milli: int = 0


NO_CORES = CoreGrant()
"""No limit."""


def of_node() -> tuple[int, ...]:
    """Return the cores that this process may use, which are those that containers may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def choose(
    milli: int, cores: Sequence[int], held: Iterable[CoreGrant], near: Collection[int] = frozenset()
) -> CoreGrant:
    """Return the cores for a container that was granted `milli`, 0 for no limit.

    Cores with room come first, those `near` its GPUs before others, and the least used ones before the rest. Raises
    InputError where the node has fewer cores.
    """
    wanted = cores_begun(milli)
    if wanted > len(cores):
        raise InputError(
            f"{wanted} cores are asked for, and this node has {len(cores)}",
            where="cpu_milli",
            hint=f"ask for at most {len(cores) * MILLI} thousandths of a core, or use a larger node",
        )
    if not wanted:
        return NO_CORES
    load, each = _load(held), milli / wanted

    def rank(core: int) -> tuple[bool, bool, float, int]:
        used = load.get(core, 0.0)
        # a millionth of a core is no overload: thirds do not add up exactly
        return used + each > MILLI + 0.001, core not in near, used, core

    return CoreGrant(tuple(sorted(sorted(cores, key=rank)[:wanted])), milli)


def write(cores: Iterable[int]) -> str:
    """Return cores in the form of a cpuset: `0,3`."""
    return ",".join(map(str, cores))


def read(text: str) -> tuple[int, ...]:
    """Return the cores of a cpuset that `write` has written."""
    return tuple(int(core) for core in text.split(",") if core)


def cpuinfo(text: str, cores: Collection[int]) -> str:
    """Return what /proc/cpuinfo says, without other cores than these; what is said of no core in particular stays."""
    kept = []
    for block in text.strip("\n").split("\n\n"):
        found = _PROCESSOR.search(block)
        if found is None or int(found[1]) in cores:
            kept.append(block)
    return "\n\n".join(kept) + "\n\n"


def draw(grant: CoreGrant, folder: Path) -> dict[str, Path]:
    """Write what a container shall see of its cores below a folder; return the files by where it sees them.

    Containers with the same cores share the files; those that nobody has asked for in a day are removed, which changes
    nothing for containers that have them mounted. Raises UnavailableError where they cannot be written.
    """
    if not grant.cores:
        return {}
    set_of = write(grant.cores)
    # a list of all cores of a large machine is too long for a name
    own = folder / sha256(set_of.encode()).hexdigest()[:16]
    try:
        own.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.utime(own)
        texts = {ONLINE: f"{set_of}\n", CPUINFO: cpuinfo(Path(CPUINFO).read_text(), grant.cores)}
        files = {target: own / PurePosixPath(target).name for target in texts}
        for target, file in files.items():
            # a file that a container has mounted is never written again
            if not file.exists():
                part = file.with_suffix(f".{threading.get_ident()}")
                part.write_text(texts[target])
                part.chmod(0o444)
                part.rename(file)
        for other in folder.iterdir():
            # another launch may remove the same one
            with contextlib.suppress(FileNotFoundError):
                if other.stat().st_mtime < time.time() - _KEEP_S:
                    shutil.rmtree(other)
    except OSError as error:
        raise UnavailableError(
            f"what a container sees of its cores cannot be written: {error}",
            where=str(folder),
            hint="make room on the file system of this folder",
        ) from error
    return files


def _load(held: Iterable[CoreGrant]) -> Mapping[int, float]:
    load: dict[int, float] = {}
    for grant in held:
        for core in grant.cores:
            load[core] = load.get(core, 0.0) + grant.milli / len(grant.cores)
    return load
