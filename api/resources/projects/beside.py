"""CPU and memory of projects: quotas that they may have beside the one of GPUs, and limits above these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from api.auth.identity import Identity
from api.auth.policy import Action
from api.tables.projects import Project
from common.errors import ForbiddenError, InputError
from common.sentence import Sentence


class _Kind(NamedTuple):
    """The columns of a resource, the field of a session, and how many of what stands in them make what people read."""

    quota: str
    limit: str
    field: str
    unit: str
    divisor: int

    def words(self, amount: int) -> Sentence:
        """Return an amount with its unit."""
        if self.divisor > 1:
            return Sentence("{amount} CPU", amount=f"{amount / self.divisor:g}")
        return Sentence("{amount} MiB of memory", amount=amount)


_CPU = _Kind("cpu_quota_milli", "cpu_limit_milli", "cpu_milli", "CPU", 1000)
_MEMORY = _Kind("memory_quota_mib", "memory_limit_mib", "memory_mib", "MiB of memory", 1)
_KINDS = _CPU, _MEMORY


def amounts(project: Project) -> Mapping[str, int | None]:
    """Return the quotas and limits of a project, by column; None where it has none."""
    return {name: getattr(project, name) for kind in _KINDS for name in (kind.quota, kind.limit)}


def check(project: Project, before: Mapping[str, int | None], caller: Identity, *, was_capped: bool = False) -> None:
    """Refuse limits that say something else than the quotas do, and changes but by the site's people.

    A quota of CPU or memory has no bound in the domain, and takes from all others. One that `was_capped` had no more
    than its quotas.
    """
    changed = [name for name, amount in amounts(project).items() if amount != before.get(name)]
    if was_capped and project.over_quota and any(_is_unbounded(project, kind) for kind in _KINDS):
        changed.append("over_quota")
    if changed and not caller.may(Action.PROJECT_WEIGH):
        raise ForbiddenError(
            "you may not say what a project has of CPU and memory",
            where=changed[0],
            hint="leave it as it is, or ask an administrator of the site",
        )
    for kind in _KINDS:
        _check_limit(project, kind)


def check_caps(project: Project, cpu_milli: int, memory_mib: int, *, preemptible: bool) -> None:
    """Refuse what is larger than all that a project may hold, so that it would wait for ever; raises InputError."""
    is_limit = preemptible and project.over_quota
    for kind, asked in ((_CPU, cpu_milli), (_MEMORY, memory_mib)):
        quota = getattr(project, kind.quota)
        most = getattr(project, kind.limit) if is_limit else quota
        if quota is None or most is None or asked <= most:
            continue
        said = {"project": project.name, "most": kind.words(most), "asked": kind.words(asked)}
        raise InputError(
            Sentence("{project} may hold {most}, and {asked} are asked for", **said)
            if preemptible or not project.over_quota
            else Sentence(
                "{project} may hold {most} by work that cannot be reclaimed, and {asked} are asked for", **said
            ),
            where=kind.field,
            hint=Sentence("ask for fewer, or for a larger limit")
            if is_limit
            else Sentence("ask for fewer, or for a larger quota"),
        )


def _is_unbounded(project: Project, kind: _Kind) -> bool:
    """Return whether nothing but a hard cap bounds what the site has given a quota of."""
    return getattr(project, kind.quota) is not None and getattr(project, kind.limit) is None


def _check_limit(project: Project, kind: _Kind) -> None:
    quota, limit = getattr(project, kind.quota), getattr(project, kind.limit)
    if limit is None:
        return
    if quota is None:
        raise InputError(
            f"a limit of {kind.unit} stands above a quota, and there is none",
            where=kind.limit,
            hint="give a quota, 0 if nothing is to be guaranteed, or take the limit away",
        )
    if not project.over_quota:
        raise InputError(
            "a quota that is a hard cap is the limit itself",
            where=kind.limit,
            hint="take the limit away, or let the project go over its quota",
        )
    if limit < quota:
        raise InputError(
            f"the limit would be {kind.words(limit)}, and the quota is {kind.words(quota)}",
            where=kind.limit,
            hint="choose a limit that is no less than the quota, or take it away",
        )
