"""Jobs of Slurm: the words that ask for one, and what is read of them. Pure.

Words and formats are of the man pages of sbatch and squeue, and have been tried with 22.05.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from api.engine.launcher import LeasedNode
from common.lease_protocol import Lease
from common.sentence import Sentence

GRES = "fgpu"
"""The generic resource that stands for GPUs, in thousandths of one; Slurm counts it and knows no devices of it."""
NAME = "penstock"
SRUN = "/usr/bin/srun"
COMPLETING = "COMPLETING"
"""The state of a job whose steps still end: why they do is told afterwards, and until then its places are nobody's."""
LISTED = "%i|%T|%r|%k"
"""Id, state, reason and comment. The comment is free text, so that only jobs of our own account may be listed so."""
LENT = frozenset({"RUNNING", "RESIZING", "SIGNALING", "STOPPED"})
"""States in which a job has its places. One that is stopped keeps its cores, one that is suspended does not."""
SUSPENDED = "SUSPENDED"
OVER = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", COMPLETING, "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "STAGE_OUT", "TIMEOUT"),
    }
)
"""States in which a job holds nothing any more, and never will. One of which we do not know the state waits."""


@dataclass(frozen=True)
class Job:
    """A job of ours: its number, its state and the reason for that, as Slurm writes them."""

    number: int
    state: str
    reason: str
    lease: Lease

    @property
    def is_over(self) -> bool:
        """Whether it holds nothing any more, and never will."""
        return self.state in OVER

    @property
    def is_lost(self) -> bool:
        """Whether its session has lost its place: one that is suspended is still there, while others have that."""
        return self.is_over or self.state == SUSPENDED


def script(lease: Lease, places: Sequence[LeasedNode], holder: str) -> str:
    """Return what a job runs: on each of its nodes the program `holder` holds the lease. No secret is in it.

    A job's script runs on the first of its nodes alone, and a step on the nodes of one component unless it names all.
    """
    hold = f"{holder} {lease}"
    if len(places) == 1:
        return f"#!/bin/sh\nexec {hold}\n"
    count = len([*_components(places)])
    components = f" --het-group=0-{count - 1}" if count > 1 else ""
    return f"#!/bin/sh\nexec {SRUN} --mpi=none{components} {hold}\n"


def comment(lease: Lease, owner: UUID) -> str:
    """Return what a job is found again by: its lease, and the installation whose it is; others may have the account."""
    return f"{lease}:{owner}"


def submission(lease: Lease, places: Sequence[LeasedNode], partition: str, owner: UUID) -> list[str]:
    """Return the words that ask for places: nodes of which as much is taken are one component of the job.

    Slurm takes as much of each node of a component, and all components or none.
    """
    words = ["sbatch", "--parsable"]
    for number, component in enumerate(_components(places)):
        words += [":"] if number else []
        words += [
            f"--comment={comment(lease, owner)}",
            f"--job-name={NAME}",
            f"--partition={partition}",
            "--no-requeue",
            "--output=/dev/null",
            "--chdir=/",
            # what the launcher gives it, and no more: anything else has Slurm log the account in on the node first
            "--export=ALL",
            *component,
        ]
    return words


NOTHING = "#!/bin/sh\n"


def unused(partition: str) -> list[str]:
    """Return the words that ask for a job that never begins, whose script is `NOTHING`."""
    return ["sbatch", "--parsable", "--hold", f"--partition={partition}", "--output=/dev/null", "--chdir=/"]


def number(said: str) -> int:
    """Return the number of the job that was asked for: its cluster may stand behind it."""
    return int(said.partition(";")[0])


def _components(places: Iterable[LeasedNode]) -> Iterator[list[str]]:
    def amount(place: LeasedNode) -> tuple[int, int, int]:
        return place.gpu_milli, place.cores, place.memory_mib

    for (gpu_milli, cores, memory_mib), same in groupby(sorted(places, key=amount), amount):
        nodes = sorted(place.node for place in same)
        yield [
            f"--nodelist={','.join(nodes)}",
            f"--nodes={len(nodes)}",
            f"--ntasks={len(nodes)}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={max(cores, 1)}",
            # none would be all that the node has
            f"--mem={max(memory_mib, 1)}M",
            *([f"--gres={GRES}:{gpu_milli}"] if gpu_milli else []),
        ]


def read(listing: str, owner: UUID) -> list[Job]:
    """Return the jobs of an installation in a listing, a line each; what is none of them is left out."""
    return [job for line in listing.splitlines() if (job := _job(line, owner)) is not None]


def _job(line: str, owner: UUID) -> Job | None:
    id_, _, rest = line.partition("|")
    state, _, rest = rest.partition("|")
    reason, _, text = rest.partition("|")
    named, _, whose = text.strip().rpartition(":")
    lease = Lease.read(named) if whose == str(owner) else None
    # a component of a job is `number+index`
    number = id_.partition("+")[0]
    return Job(int(number), state, reason, lease) if lease and number.isdecimal() else None


def by_lease(jobs: Iterable[Job]) -> dict[Lease, list[Job]]:
    """Return the jobs of each lease, with their components, the first that was asked for first."""
    found: defaultdict[Lease, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.number):
        found[job.lease].append(job)
    return dict(found)


def kept(jobs: Iterable[Job]) -> list[Job]:
    """Return the one job of a lease that counts, with its components: one that is lent, or else may be.

    Of equal ones it is the first. The others are not needed: somebody has asked twice, or copied a comment.
    """
    by_number: defaultdict[int, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.number):
        by_number[job.number].append(job)
    return min(by_number.values(), key=lambda some: (not are_lent(some), bool(why_over(some))), default=[])


def are_lent(jobs: Collection[Job]) -> bool:
    """Return whether all components of a lease have their places."""
    return bool(jobs) and all(job.state in LENT for job in jobs)


def are_ending(jobs: Iterable[Job]) -> bool:
    """Return whether Slurm does not tell yet why a lease ends."""
    return any(job.state == COMPLETING for job in jobs)


def why_over(jobs: Iterable[Job]) -> str:
    """Return why a lease has ended, in Slurm's words; empty where it has not."""
    over = next((job for job in jobs if job.is_lost), None)
    if over is None:
        return ""
    return over.state if over.reason in ("", "None", over.state) else f"{over.state} ({over.reason})"


def why_waiting(jobs: Iterable[Job]) -> str:
    """Return why a lease is not lent, in Slurm's words."""
    return next((job.reason for job in jobs if job.state not in LENT), Sentence("its job is not to be found"))
