"""The launcher that takes leases from Slurm, by its own commands.

A job's number is a hint: a controller that was killed forgets the jobs of its last seconds and gives their numbers to
others. Jobs are found by their comments alone, which are listed for our own account only: comments of other people may
hold line feeds, and so whole lines of a listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog
from anyio import CapacityLimiter, to_thread

from api.engine.launcher import LeasedNode, Leases, NotLentError
from api.engine.slurm import health, jobs, nodes
from api.engine.slurm.jobs import Job
from api.engine.slurm.listing import Listing
from api.engine.slurm.nodes import SlurmNode
from common import process
from common.checks import Check
from common.errors import PenstockError, ProcessError, UnavailableError
from common.lease_protocol import HOLDER, Lease
from common.sentence import Sentence

log = structlog.get_logger()

LEND_S = 10.0
"""A lease that is not lent after so long is given back, and the session waits."""
COMMAND_S = 8.0
COMPLETE_S = 2.0
"""So long after the end of its containers a job may take to end, whose reason is told afterwards."""
ENDING_S = 40.0
"""So long a job may take to end while its containers are stopped, before its lease counts as ended without a reason."""
AT_ONCE = 8
"""So many commands of Slurm run at once: each is a process of its own.

Each holds a thread, of these alone: where Slurm hangs, the scheduler still decides and pages are made.
"""
CANCELLED_AT_ONCE = 500
"""So many jobs are named by one command at most."""
PASSED = 200
"""So many numbers are used up at most: a controller forgets its last seconds, and one that forgot all begins anew."""
Owner = Callable[[], Awaitable[UUID]]
HINT = "look at slurmctld and munge on the master: systemctl status slurmctld munge, sinfo"


class SlurmLauncher:
    """Asks the controller that the file `conf` names; jobs go to one partition."""

    is_watched = True

    def __init__(
        self, partition: str, owner: Owner, conf: Path | None = None, lend_s: float = LEND_S, *, holder: str = HOLDER
    ) -> None:
        """Know whom to ask; nothing is asked yet. On each node of a job runs `holder`, which names its lease there.

        `owner` tells the installation whose the jobs are: another one may have the same account.
        """
        self._owner = owner
        self._partition = partition
        self._conf = conf
        self._holder = holder
        self._environment = {"PATH": "/usr/bin:/bin"} | ({"SLURM_CONF": str(conf)} if conf else {})
        self._lend_s = lend_s
        self._listing = Listing(self._list)
        self._threads = CapacityLimiter(AT_ONCE)
        # sbatch tries again for a while where Slurm has too many jobs
        self._submissions = asyncio.Semaphore(AT_ONCE // 2)
        self._ending: dict[Lease, float] = {}
        self._numbering = asyncio.Lock()
        self._alive: set[int] = set()
        self._forgotten = 0

    async def admit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        """Ask for a job where there is none yet, and wait until it runs."""
        found = await self._jobs(lease)
        if not found:
            await self._submit(lease, places)
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._lend_s
        while not jobs.are_lent(counts := jobs.kept(found)):
            why = jobs.why_over(counts)
            if (why and not jobs.are_ending(counts)) or clock.time() > deadline:
                await self._cancel(found)
                raise NotLentError(
                    Sentence("Slurm took its place back: {why}", why=why)
                    if why
                    else Sentence("Slurm does not lend its place: {why}", why=jobs.why_waiting(counts))
                )
            found = await self._jobs(lease)

    async def release(self, leases: Collection[Lease]) -> Mapping[Lease, str]:
        """Cancel the jobs of leases; those of a controller that does not answer are found later by `watch`."""
        try:
            found = await self._ended(leases)
            await self._cancel([job for lease in leases for job in found.get(lease, ())])
        except PenstockError as error:
            log.warning("leases are given back later", leases=len(leases), reason=str(error))
            return {}
        ended = {lease: some for lease in leases if not jobs.are_ending(some := jobs.kept(found.get(lease, ())))}
        return {lease: why for lease, some in ended.items() if (why := jobs.why_over(some))}

    async def watch(self) -> Leases:
        """List all jobs of ours, and the nodes; of several jobs of a lease but one stays.

        One whose job ends is still lent until Slurm tells why, or `ENDING_S` is over.
        """
        listed_jobs = await self._listing.after_now()
        found = {lease: jobs.kept(some) for lease, some in listed_jobs.items()}
        await self._cancel([job for lease, some in listed_jobs.items() for job in some if job not in found[lease]])
        known = await self._nodes()
        since, at = self._ending, asyncio.get_running_loop().time()
        self._ending = {lease: since.get(lease, at) for lease, some in found.items() if jobs.are_ending(some)}
        ended = {
            lease: why
            for lease, some in found.items()
            if (why := jobs.why_over(some)) and (lease not in self._ending or at - self._ending[lease] >= ENDING_S)
        }
        return Leases(
            lent=found.keys() - ended.keys(),
            ended=ended,
            left={lease for lease in ended if not all(job.is_over for job in found[lease])},
            nodes={name: node.why for name, node in known.items()},
            held={name: node.held for name, node in known.items()},
            unknown=f"Slurm does not know it in partition {self._partition}",
        )

    async def checks(self) -> list[Check]:
        """Look at munge, the controllers, their accounting and the nodes; what cannot be looked at is left out."""
        unsealed = await self._unsealed()
        found = [health.munge(unsealed)]
        if unsealed:
            return found
        found += health.controllers(await self._pinged())
        if not any(check.ok for check in found[1:]):
            return found
        if health.has_accounting_daemon(await self._ask(["scontrol", "show", "config"])):
            found.append(health.accounting(await self._problem(["sacctmgr", "--noheader", "show", "cluster"])))
        return [*found, *health.nodes({name: node.why for name, node in (await self._nodes()).items()})]

    async def _unsealed(self) -> str:
        """Return why munge does not seal what commands of Slurm say; empty where it does."""
        conf = self._conf.read_text(encoding="utf-8") if self._conf and self._conf.is_file() else ""
        socket = health.munge_socket(conf)
        return await self._problem(["munge", "--no-input", *([f"--socket={socket}"] if socket else [])])

    async def _problem(self, words: Sequence[str]) -> str:
        """Return why a command fails; empty where it does not."""
        try:
            await self._run(words)
        except PenstockError as error:
            return " ".join(error.problems[0].reason.split())
        return ""

    async def _pinged(self) -> str:
        """Return what `scontrol ping` says, also where no controller answers."""
        try:
            return await self._run(["scontrol", "ping"], accepted=range(256))
        except PenstockError as error:
            return error.problems[0].reason

    async def _nodes(self) -> dict[str, SlurmNode]:
        return nodes.read(
            await self._ask(
                ["sinfo", "--Node", f"--partition={self._partition}", "--noheader", f"--Format={nodes.COLUMNS}"]
            )
        )

    async def _ended(self, leases: Collection[Lease]) -> dict[Lease, list[Job]]:
        """Return all jobs when none of these leases is about to end, or after a while."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + COMPLETE_S
        while True:
            found = await self._listing.after_now()
            if clock.time() > deadline or not any(jobs.are_ending(found.get(lease, ())) for lease in leases):
                return found

    async def _jobs(self, lease: Lease) -> list[Job]:
        return (await self._listing.after_now()).get(lease, [])

    async def _submit(self, lease: Lease, places: Sequence[LeasedNode]) -> None:
        words = jobs.submission(lease, places, self._partition, await self._owner())
        try:
            async with self._submissions:
                await self._pass_numbers()
                self._alive.add(jobs.number(await self._run(words, stdin=jobs.script(lease, places, self._holder))))
        except ProcessError as error:
            await self._ping()
            reason = " ".join(error.problems[0].reason.split())
            raise NotLentError(Sentence("Slurm does not take its job: {why}", why=reason)) from error

    async def _pass_numbers(self) -> None:
        """Use up the numbers of jobs that the controller has forgotten and would give to others.

        What is left of those may still end on their nodes, and Slurm closes a node that is to run another job with the
        number of one there.
        """
        async with self._numbering:
            while self._forgotten:
                number = jobs.number(await self._run(jobs.unused(self._partition), stdin=jobs.NOTHING))
                await self._ask(["scancel", "--quiet", str(number)])
                if not self._forgotten - PASSED < number < self._forgotten:
                    self._forgotten = 0

    async def _cancel(self, found: Collection[Job]) -> None:
        numbers = sorted({job.number for job in found if not job.is_over})
        for first in range(0, len(numbers), CANCELLED_AT_ONCE):
            await self._ask(["scancel", "--quiet", *map(str, numbers[first : first + CANCELLED_AT_ONCE])])

    async def _list(self) -> dict[Lease, list[Job]]:
        known = set(self._alive)
        listed = await self._ask(["squeue", "--me", "--states=all", "--noheader", f"--format={jobs.LISTED}"])
        found = jobs.read(listed, await self._owner())
        if gone := known - {job.number for job in found}:
            self._forgotten = max(self._forgotten, *gone)
        # what was asked for meanwhile may not be listed yet
        self._alive = {job.number for job in found if not job.is_over} | (self._alive - known)
        return jobs.by_lease(found)

    async def _ping(self) -> None:
        """Raise UnavailableError where no controller answers."""
        await self._ask(["scontrol", "ping"])

    async def _ask(self, words: Sequence[str]) -> str:
        """Run what only fails where the controller does not answer."""
        try:
            return await self._run(words)
        except ProcessError as error:
            # without munge commands say nothing for longer than they have time
            said = await self._unsealed() or " ".join(error.problems[0].reason.split())
            why = Sentence("Slurm's controller does not answer: {why}", why=said)
            raise UnavailableError(why, hint=HINT) from error

    async def _run(self, words: Sequence[str], stdin: str = "", accepted: Collection[int] = (0,)) -> str:
        command = partial(
            process.run,
            words,
            env=self._environment,
            stdin=stdin,
            hint=HINT,
            accepted=accepted,
            timeout_s=COMMAND_S,
        )
        return await to_thread.run_sync(command, limiter=self._threads, abandon_on_cancel=True)
