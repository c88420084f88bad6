"""Reasons of CPU and memory: why work waits or is stopped for a quota of these, in words."""

from __future__ import annotations

from api.scheduler.ledger import Ledger
from api.scheduler.phrases import cpus, memory
from api.scheduler.snapshot import Resource, Workload
from common.sentence import Sentence


def refusal(ledger: Ledger, workload: Workload) -> str:
    """Return what of CPU or memory the project may not have, and what would help; nothing where it may."""
    refused = ledger.beside.refuses(workload)
    if not refused:
        return ""
    resource, name, most = refused.resource, workload.project, amount(refused.resource, refused.most)
    asked = workload.amount(resource)
    is_quota = refused.fixed or not ledger.project(name).over_quota
    if asked > refused.most:
        fixed = refused.fixed and ledger.project(name).over_quota
        return too_much(name, most, amount(resource, asked), is_quota=is_quota, fixed=fixed)
    so_far = _held(ledger, resource, name, fixed=refused.fixed)
    values = {
        "held": of_line(so_far, most, is_quota=is_quota, fixed=refused.fixed),
        "asked": amount(resource, asked),
    }
    if is_quota:
        return Sentence(
            "{held}, and the session asks for {asked} more; stop one of its sessions, or ask for a larger quota",
            **values,
        )
    return Sentence(
        "{held}, and the session asks for {asked} more; stop one of its sessions, or ask for a larger limit", **values
    )


def beyond(ledger: Ledger, workload: Workload) -> str:
    """Return how the project stands where work without GPUs goes beyond its quotas; nothing where it does not."""
    resource = None if workload.total_milli else ledger.beside.exceeded(workload)
    if not resource:
        return ""
    so_far, quota = _held(ledger, resource, workload.project), ledger.beside.quota(resource, workload.project)
    return Sentence(
        "{held} of its quota of {most}, more only while others leave it idle",
        held=so_far,
        most=amount(resource, quota),
    )


def reclaimed(ledger: Ledger, victim: Workload) -> str:
    """Return why work without GPUs has to go for a guarantee of CPU or memory."""
    line = ledger.beside.lines().get(victim.project)
    if line is None or not line.has_right(victim):
        return Sentence("{project} has no quota of what it asks for", project=victim.project)
    so_far, more = ledger.beside.retained(line.resource, victim.project), amount(line.resource, line.surplus)
    holds = held(victim.project, amount(line.resource, so_far))
    return Sentence("{held}, {more} of them beyond its quota", held=holds, more=more)


def held(project: str, amount: str, more: str | int = "") -> str:
    """Return what a project holds, and what it is about to get."""
    if more:
        return Sentence("{project} holds {amount} and gets {more} more", project=project, amount=amount, more=more)
    return Sentence("{project} holds {amount}", project=project, amount=amount)


def of_line(held: str, most: str, *, is_quota: bool, fixed: bool) -> str:
    """Return what a project holds of its quota or limit, by work that cannot be reclaimed or by any."""
    if fixed:
        return Sentence("{held} of its quota of {most} by work that cannot be reclaimed", held=held, most=most)
    if is_quota:
        return Sentence("{held} of its quota of {most}", held=held, most=most)
    return Sentence("{held} of its limit of {most}", held=held, most=most)


def too_much(project: str, most: str, asked: str, *, is_quota: bool, fixed: bool) -> str:
    """Return that more is asked for than a project may ever have."""
    values = {"project": project, "most": most, "asked": asked}
    if fixed:
        return Sentence(
            "{project} may hold {most} by work that cannot be reclaimed, and the session asks for {asked};"
            " ask for fewer or for a larger quota",
            **values,
        )
    if is_quota:
        return Sentence(
            "{project} may hold {most}, and the session asks for {asked}; ask for fewer or for a larger quota", **values
        )
    return Sentence(
        "{project} may hold {most}, and the session asks for {asked}; ask for fewer or for a larger limit", **values
    )


def amount(resource: Resource, value: int) -> str:
    """Return an amount with its unit."""
    if resource is Resource.MEMORY:
        return memory(value)
    return cpus(value)


def _held(ledger: Ledger, resource: Resource, name: str, *, fixed: bool = False) -> str:
    """Return what runs of a project, and what is about to."""
    nominated = ledger.beside.nominated(resource, name, fixed=fixed)
    so_far = amount(resource, ledger.beside.retained(resource, name, fixed=fixed))
    return held(name, so_far, nominated and amount(resource, nominated))
