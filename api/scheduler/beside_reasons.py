"""Reasons of CPU and memory: why work waits or is stopped for a quota of these, in words."""

from __future__ import annotations

from api.scheduler.ledger import Ledger
from api.scheduler.snapshot import Resource, Workload


def refusal(ledger: Ledger, workload: Workload) -> str:
    """Return what of CPU or memory the project may not have, and what would help; nothing where it may."""
    refused = ledger.beside.refuses(workload)
    if not refused:
        return ""
    resource, name, most = refused.resource, workload.project, amount(refused.resource, refused.most)
    asked = workload.amount(resource)
    line = "quota" if refused.fixed or not ledger.project(name).over_quota else "limit"
    kind = " by work that cannot be reclaimed" if refused.fixed and ledger.project(name).over_quota else ""
    if asked > refused.most:
        return (
            f"{name} may hold {most}{kind}, and {amount(resource, asked)} are asked for;"
            f" ask for fewer or for a larger {line}"
        )
    held = f"{name} {_held(ledger, resource, name, fixed=refused.fixed)} of its {line} of {most}"
    held += " by work that cannot be reclaimed" if refused.fixed else ""
    hint = f"stop one of its sessions, or ask for a larger {line}"
    return f"{held}, and {amount(resource, asked)} more are asked for; {hint}"


def beyond(ledger: Ledger, workload: Workload) -> str:
    """Return how the project stands where work without GPUs goes beyond its quotas; nothing where it does not."""
    resource = None if workload.total_milli else ledger.beside.exceeded(workload)
    if not resource:
        return ""
    held, quota = _held(ledger, resource, workload.project), ledger.beside.quota(resource, workload.project)
    return f"{workload.project} {held} of its quota of {amount(resource, quota)}, more only while others leave it idle"


def reclaimed(ledger: Ledger, victim: Workload) -> str:
    """Return why work without GPUs has to go for a guarantee of CPU or memory."""
    line = ledger.beside.lines().get(victim.project)
    if line is None or not line.has_right(victim):
        return f"{victim.project} has no quota of what it asks for"
    held, more = ledger.beside.retained(line.resource, victim.project), amount(line.resource, line.surplus)
    return f"{victim.project} holds {amount(line.resource, held)}, {more} of them beyond its quota"


def amount(resource: Resource, value: int) -> str:
    """Return an amount with its unit."""
    if resource is Resource.MEMORY:
        return f"{value} MiB of memory"
    return f"{value / 1000:g} CPU{'s' if value != 1000 else ''}"


def _held(ledger: Ledger, resource: Resource, name: str, *, fixed: bool = False) -> str:
    """Return what runs of a project, and what is about to."""
    nominated = ledger.beside.nominated(resource, name, fixed=fixed)
    more = f" and gets {amount(resource, nominated)} more" if nominated else ""
    return f"holds {amount(resource, ledger.beside.retained(resource, name, fixed=fixed))}{more}"
