"""The launcher that takes leases from Slurm, by its own commands.

A job's number is a hint: a controller that was killed forgets the jobs of its last seconds and gives their numbers to
others. Jobs are found by their comments alone, which are listed for our own account only: comments of other people may
hold line feeds, and so whole lines of a listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from api.engine.launcher import Lease, LeasedNode, Leases, NotLentError
from api.engine.slurm import jobs, nodes
from api.engine.slurm.jobs import Job
from api.engine.slurm.listing import Listing
from common import process
from common.errors import PenstockError, ProcessError, UnavailableError

log = structlog.get_logger()

LEND_S = 10.0
"""A lease that is not lent after so long is given back, and the session waits."""
COMMAND_S = 8.0
AT_ONCE = 8
"""So many commands of Slurm run at once: each is a process of its own."""
CANCELLED_AT_ONCE = 500
"""So many jobs are named by one command at most."""
HINT = "look at slurmctld on the master: systemctl status slurmctld, sinfo"


class SlurmLauncher:
    """Asks the controller that the file `conf` names; jobs go to one partition."""

    is_watched = True

    def __init__(self, partition: str, conf: Path | None = None, lend_s: float = LEND_S) -> None:
        """Know whom to ask; nothing is asked yet."""
        self._partition = partition
        self._environment = {"PATH": "/usr/bin:/bin"} | ({"SLURM_CONF": str(conf)} if conf else {})
        self._lend_s = lend_s
        self._listing = Listing(self._list)
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def admit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        """Ask for a job where there is none yet, and wait until it runs."""
        found = await self._jobs(lease)
        if not found:
            await self._submit(lease, places)
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._lend_s
        while not jobs.are_lent(counts := jobs.kept(found)):
            why = jobs.why_over(counts)
            if why or clock.time() > deadline:
                await self._cancel(found)
                raise NotLentError(
                    f"Slurm took its place back: {why}"
                    if why
                    else f"Slurm does not lend its place: {jobs.why_waiting(counts)}"
                )
            found = await self._jobs(lease)

    async def release(self, leases: Collection[Lease]) -> None:
        """Cancel the jobs of leases; those of a controller that does not answer are found later by `watch`."""
        try:
            found = await self._listing.after_now()
            await self._cancel([job for lease in leases for job in found.get(lease, ())])
        except PenstockError as error:
            log.warning("leases are given back later", leases=len(leases), reason=str(error))

    async def watch(self) -> Leases:
        """List all jobs of ours, and the nodes; of several jobs of a lease but one stays."""
        listed_jobs = await self._listing.after_now()
        found = {lease: jobs.kept(some) for lease, some in listed_jobs.items()}
        await self._cancel([job for lease, some in listed_jobs.items() for job in some if job not in found[lease]])
        listed = await self._ask(
            ["sinfo", "--Node", f"--partition={self._partition}", "--noheader", f"--format={nodes.FORMAT}"]
        )
        ended = {lease: why for lease, some in found.items() if (why := jobs.why_over(some))}
        return Leases(
            lent=found.keys() - ended.keys(),
            ended=ended,
            left={lease for lease in ended if not all(job.is_over for job in found[lease])},
            nodes=nodes.read(listed),
            unknown=f"Slurm does not know it in partition {self._partition}",
        )

    async def _jobs(self, lease: Lease) -> list[Job]:
        return (await self._listing.after_now()).get(lease, [])

    async def _submit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        words = jobs.submission(lease, places, self._partition)
        try:
            await self._run(words, stdin=jobs.SCRIPT)
        except ProcessError as error:
            await self._ping()
            reason = " ".join(error.problems[0].reason.split())
            raise NotLentError(f"Slurm does not take its job: {reason}") from error

    async def _cancel(self, found: Collection[Job]) -> None:
        numbers = sorted({job.number for job in found if not job.is_over})
        for first in range(0, len(numbers), CANCELLED_AT_ONCE):
            await self._ask(["scancel", "--quiet", *map(str, numbers[first : first + CANCELLED_AT_ONCE])])

    async def _list(self) -> dict[Lease, list[Job]]:
        listed = await self._ask(["squeue", "--me", "--states=all", "--noheader", f"--format={jobs.LISTED}"])
        return jobs.by_lease(jobs.read(listed))

    async def _ping(self) -> None:
        """Raise UnavailableError where no controller answers."""
        await self._ask(["scontrol", "ping"])

    async def _ask(self, words: Sequence[str]) -> str:
        """Run what only fails where the controller does not answer."""
        try:
            return await self._run(words)
        except ProcessError as error:
            said = " ".join(error.problems[0].reason.split())
            raise UnavailableError(f"Slurm's controller does not answer: {said}", hint=HINT) from error

    async def _run(self, words: Sequence[str], stdin: str = "") -> str:
        async with self._turns:
            return await asyncio.to_thread(
                process.run, words, env=self._environment, stdin=stdin, hint=HINT, timeout_s=COMMAND_S
            )
