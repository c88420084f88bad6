"""Lines of the decision log: what was decided of each workload, and why."""

from __future__ import annotations

from collections.abc import Mapping

from api.scheduler.ledger import Ledger
from api.scheduler.pending_reasons import PendingWorkload, holds
from api.scheduler.phrases import together
from api.scheduler.snapshot import PendingReason, Running, Workload
from api.scheduler.titles import Places, full_title, nodes
from common.sentence import Sentence


def placed(ledger: Ledger, workload: Workload, places: Places) -> str:
    """Return that a workload gets places."""
    held = holds(ledger, workload.project)
    return Sentence("placed: {whom} on {nodes}: {held}", whom=full_title(workload), nodes=nodes(places), held=held)


def grown(ledger: Ledger, workload: Workload, rank: int, node: str) -> str:
    """Return that an elastic workload gets one container more."""
    return Sentence(
        "grown: {whom} by container {rank} on {node}: {held}",
        whom=full_title(workload),
        rank=rank,
        node=node,
        held=holds(ledger, workload.project),
    )


def waits(item: PendingWorkload, explained: Mapping[str, PendingReason]) -> str:
    """Return that a workload waits."""
    return Sentence("waits: {whom}: {why}", whom=full_title(item.workload), why=explained[item.workload.id].reason)


def stopped(running: Running, beneficiary: Workload, why: str, *, moved: bool) -> str:
    """Return that a workload is stopped for another one, to wait or to go on elsewhere, or some of its containers."""
    whom = full_title(running.workload)
    if running.part_of:
        whom = Sentence.counted(
            "container {ranks} of {whom}",
            "containers {ranks} of {whom}",
            len(running.ranks),
            ranks=together([str(rank) for rank in running.ranks]),
            whom=whom,
        )
    values = {"whom": whom, "other": full_title(beneficiary), "why": why}
    if moved:
        return Sentence("moved: {whom} for {other}: {why}", **values)
    return Sentence("reclaimed: {whom} for {other}: {why}", **values)
