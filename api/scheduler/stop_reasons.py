"""Reasons to stop: why a workload that runs has to go, is moved, or gives up containers, in words."""

from __future__ import annotations

from api.scheduler import beside_reasons
from api.scheduler.ledger import Ledger
from api.scheduler.pending_reasons import holds
from api.scheduler.phrases import gpus
from api.scheduler.rights import Right
from api.scheduler.snapshot import Workload
from api.scheduler.titles import Places, nodes, title
from common.sentence import Sentence


def shrunk(victim: Workload, beneficiary: Workload) -> str:
    """Return why a gang gives up containers for other work of its project."""
    whom = title(beneficiary, victim.project)
    return Sentence("{whom} waits, and the gang goes on with fewer containers", whom=whom)


def reclaimed(ledger: Ledger, victim: Workload, beneficiary: Workload, right: Right) -> str:
    """Return why a workload is reclaimed, by the right of the other one."""
    whom = title(beneficiary, victim.project)
    if victim.project == beneficiary.project:
        return Sentence(
            "{whom} has the higher priority ({higher} over {lower})",
            whom=whom,
            higher=beneficiary.priority,
            lower=victim.priority,
        )
    if not victim.total_milli and not beneficiary.total_milli:
        return Sentence("{held}; {whom} is within its own", held=beside_reasons.reclaimed(ledger, victim), whom=whom)
    if not victim.total_milli and right is Right.GPUS:
        return Sentence("{whom} is within its quota of GPUs, and it runs beside them without one", whom=whom)
    held = holds(ledger, victim.project)
    if right is not Right.FAIR_SHARE:
        return Sentence("{held}; {whom} is within its quota", held=held, whom=whom)
    fair = gpus(ledger.fair.get(victim.project, 0))
    return Sentence("{held}, its fair share is {fair}; {whom} is within its own", held=held, fair=fair, whom=whom)


def moved(victim: Workload, beneficiary: Workload, places: Places) -> str:
    """Return why a workload is moved, and where it goes on."""
    whom = title(beneficiary, victim.project)
    return Sentence("{whom} fits once it is elsewhere; room on {nodes} is kept for it", whom=whom, nodes=nodes(places))
