"""What the library assumes of a driver and of NVML, held against what this card does."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pynvml

from appliance.gpu.layout import Limit
from appliance.gpu.share_files import LimitsFile, create_account
from common.gpu.kinds import Compute
from tests.gpu.card import MIB, Card, Program, leashed
from tests.gpu.outcomes import Figure, NotJudged

PAGE = 2 * MIB
ODD_BLOCK = PAGE + 512
BLOCKS = 64
SETTLED_S = 0.3
"""So long NVML may take to show what was taken."""
CONTEXT_ROOM_MIB = 64
"""By so much the context that the library reckons with may differ from that which NVML sees."""
SLACK_MIB = 512
"""What a container may have above its limit before the agent ends it, where the site says nothing else."""


def _taken(card: Card, program: Program, before: int) -> float:
    """Return the MiB in use since `before`, once the program has gone one step further."""
    program.ask()
    time.sleep(SETTLED_S)
    return (card.used() - before) / MIB


def granularity(card: Card) -> list[Figure]:
    """What a block of 2 MiB and 512 bytes takes, and what the account charges for it."""
    program = card.start(card.bare, "blocks", str(BLOCKS), str(ODD_BLOCK))
    least = program.line()["granularity"]
    time.sleep(SETTLED_S)
    bare = _taken(card, program, card.used()) / BLOCKS
    program.kill()
    tenant = card.tenant(2048 * MIB)
    program = card.start(tenant.environment, "blocks", str(BLOCKS), str(ODD_BLOCK))
    program.line()
    time.sleep(SETTLED_S)
    charged, before = tenant.total.used_bytes, card.used()
    taken = _taken(card, program, before)
    charged_mib = (tenant.total.used_bytes - charged) / MIB
    return [
        Figure("granularity of cuMemCreate", least / MIB, "MiB", wanted=2.0),
        Figure("a block of 2 MiB + 512 B takes", round(bare, 3), "MiB", note="mean of 64, seen by NVML"),
        Figure(
            f"charged for {BLOCKS} of them",
            round(charged_mib, 1),
            "MiB",
            wanted=round(taken, 1),
            tolerance=max(0.05 * taken, 4),
            note="wanted is what NVML saw taken; below it an honest program is ended by the agent",
        ),
    ]


def context_size(card: Card) -> list[Figure]:
    """What a context takes, by how much it grows when it is used, and what the library reckons with."""
    before = card.used()
    program = card.start(card.bare, "context")
    program.line()
    time.sleep(SETTLED_S)
    at_first = (card.used() - before) / MIB
    grown = _taken(card, program, before) - at_first
    program.kill()
    time.sleep(SETTLED_S)
    tenant, before = card.tenant(2048 * MIB), card.used()
    program = card.start(tenant.environment, "context")
    program.line()
    time.sleep(SETTLED_S)
    taken = (card.used() - before) / MIB
    reckoned, charged = tenant.context_bytes / MIB, tenant.total.used_bytes / MIB
    used = _taken(card, program, before)
    return [
        Figure("a context takes", round(at_first, 1), "MiB", note="without the library"),
        Figure("it grows when it is used by", round(grown, 1), "MiB", SLACK_MIB, bound="most", note="32 streams"),
        Figure("the library reckons with", round(reckoned, 1), "MiB", note="measured while it was made; 0: not at all"),
        Figure(
            "charged for a context",
            round(charged, 1),
            "MiB",
            wanted=round(taken, 1),
            tolerance=CONTEXT_ROOM_MIB,
            note="wanted is what NVML saw taken",
        ),
        Figure(
            "uncounted after use",
            round(used - tenant.total.used_bytes / MIB, 1),
            "MiB",
            wanted=SLACK_MIB,
            bound="most",
            note="beyond it the agent would end the container",
        ),
    ]


def identity(card: Card) -> list[Figure]:
    """Both ways to a function of the driver lead to one place, by which the library knows it."""
    found = card.run(card.bare, "identity")
    return [
        Figure(
            f"of {found['asked']} functions are elsewhere by cuGetProcAddress",
            len(found["other"]),
            wanted=0,
            note=", ".join(found["other"]),
        )
    ]


def resolved(card: Card) -> list[Figure]:
    """Both ways to a function lead into the library where it is loaded."""
    found = card.run(card.tenant(1024 * MIB).environment, "resolve")
    return [Figure(f"by {way}", name, wanted=card.library.name) for way, name in found.items()]


def host_pids(card: Card) -> list[Figure]:
    """NVML on the host names a process of a container by its number on the host, by which the agent finds it."""
    if os.geteuid() != 0:
        raise NotJudged("a namespace of processes needs root")
    program = _contained(card, None)
    inside = program.line()
    host = _first_child(program.process.pid)
    listed = [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(card.handle)]
    return [
        Figure("the host lists the process", "yes" if host in listed else "no", wanted="yes", note=f"{host}"),
        Figure("inside, without the library, NVML lists", len(inside["pids"]), "processes"),
        Figure("inside it has the number", inside["pid"], note="its own namespace"),
    ]


def shown_in_a_container(card: Card) -> list[Figure]:
    """Inside of a container NVML shows the share as the card, and our processes by their numbers there.

    This is the library of sites, at its place in a container; mounts and processes are in namespaces of their own.
    """
    if os.geteuid() != 0:
        raise NotJudged("namespaces of mounts and processes need root")
    limit = 2048 * MIB
    with tempfile.TemporaryDirectory(prefix="penstock-check-") as name:
        folder = Path(name)
        LimitsFile.create(folder / "limits/limits", [Limit(card.uuid, limit, 500, Compute.OFF)])
        create_account(folder / "account/account", 1)
        found = _contained(card, folder).line()
    return [
        Figure("memory that NVML shows", found["total"] / MIB, "MiB", wanted=limit / MIB),
        Figure("processes that it lists", len(found["pids"]), wanted=1),
        Figure(
            "it names our process by its number inside",
            "yes" if found["pids"] == [found["pid"]] else "no",
            wanted="yes",
        ),
    ]


def _contained(card: Card, files: Path | None) -> Program:
    """Start a program in namespaces of its own; with `files` the library is loaded there and finds them."""
    unshare = [*leashed(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    python = f"{sys.executable} -m tests.gpu.program {os.getpid()} nvml"
    if files is None:
        script = f"exec {python}"
    else:
        # nothing of it is seen outside: the folder lies on a file system of this namespace alone
        script = (
            f"mount -t tmpfs none /run && mkdir /run/penstock && mount --bind {files} /run/penstock && "
            f"exec env LD_PRELOAD={card.release} {python}"
        )
    return card.hold(Program([*unshare, "sh", "-c", script], card.bare))


def _first_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0
