"""Titles: how people of a project are told of workloads, their own and those of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from api.scheduler.phrases import some
from api.scheduler.snapshot import Placement, Running, Workload
from common.sentence import Sentence

OF_OTHERS = Sentence("a session of another project")
"""What people of one project are told of the sessions of others, whose names are none of their business."""
NAMED = 3
"""So many are named in a sentence; the others are counted."""

Places = Sequence[Placement]


def whom(holders: Sequence[Workload], project: str) -> str:
    """Return for whom room or quota is kept, as people of a project are told."""
    if len(holders) == 1:
        return title(holders[0], project)
    return Sentence("{count} others", count=len(holders))


def blockers(terminating: Iterable[Running], places: Places, project: str) -> str:
    """Return who is terminating on the nodes of the places, as the beginning of a sentence for people of a project."""
    wanted = {placement.node for placement in places}
    there = [item for item in terminating if any(placement.node in wanted for placement in item.placements)]
    return names(there, project) if there else Sentence("other sessions of its project are")


def names(running: Iterable[Running], project: str) -> str:
    """Return whom, as the beginning of a sentence for people of a project."""
    found = list(running)
    ids = {item.workload.id for item in found}
    stopped = [item for item in found if item.part_of not in ids]
    whole = [title(item.workload, project) for item in stopped if not item.part_of]
    of_gangs = Counter(title(item.workload, project) for item in stopped if item.part_of)
    hidden = {title(item.workload, project) for item in stopped if not _is_seen(item.workload, project)}
    counted = [
        # how many a gang gives up tells of its size
        Sentence("containers of {of}", of=of)
        if of in hidden
        else Sentence.counted("{count} container of {of}", "{count} containers of {of}", count, of=of)
        for of, count in of_gangs.items()
    ]
    many = len(whole) + sum(2 if of in hidden else count for of, count in of_gangs.items())
    return Sentence.counted("{whom} is", "{whom} are", many, whom=some(sorted([*whole, *counted]), NAMED))


def may_be_told(holders: Sequence[Workload], project: str) -> bool:
    """Return whether what they come to tells people of a project nothing of the size of one that they may not see.

    Where it is one of them, those who know the others could tell.
    """
    return sum(not _is_seen(each, project) for each in holders) != 1


def title(workload: Workload, project: str) -> str:
    """Return what people of a project are told of a workload: its name with its project, where they may know both."""
    if workload.project != project:
        return OF_OTHERS
    if workload.private:
        return Sentence("a private session of {project}", project=workload.project)
    return full_title(workload)


def _is_seen(workload: Workload, project: str) -> bool:
    """Return whether all people of a project may see a workload."""
    return workload.project == project and not workload.private


def full_title(workload: Workload) -> str:
    """Return a workload's name with its project, for the log."""
    return Sentence("{name} of {project}", name=workload.name or workload.id, project=workload.project)


def nodes(places: Places) -> str:
    """Return where the places are."""
    found = sorted({placement.node for placement in places})
    return some(found, NAMED)
