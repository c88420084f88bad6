"""Victims: which running workloads may be reclaimed for a waiting one, and how many of them together."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from api.scheduler.rights import Right
from api.scheduler.snapshot import Resource, Running, Workload

Rank = tuple[int, int, tuple[tuple[int, int, str], ...]]
"""How much a set of victims costs, the lower the better: milli-GPU, how many they are, and who they are."""


def order(running: Running) -> tuple[int, int, str]:
    """Rank victims that cost the same: the lowest priority first, then the youngest."""
    return running.workload.priority, -running.since, running.workload.id


def rank(victims: Collection[Running]) -> Rank:
    """Return what it costs to reclaim all of them; of equal sets the one that spares the higher and the older.

    A container that a gang can do without counts as nobody.
    """
    total = sum(running.workload.total_milli for running in victims)
    return total, sum(not running.part_of for running in victims), tuple(sorted(map(order, victims), reverse=True))


@dataclass(frozen=True, slots=True)
class Line:
    """What a project has beyond its quotas of CPU and memory: `surplus` of the `resource` of which that is most.

    `given` are those that it has quotas of. Work without GPUs that asks for none of them has no right to anything. Of
    what has a right only those `beyond` go, where that is told.
    """

    given: tuple[Resource, ...]
    resource: Resource
    surplus: int
    beyond: frozenset[str] | None = None

    def has_right(self, workload: Workload) -> bool:
        """Return whether the workload asks for something of which the project has a quota."""
        return any(workload.amount(resource) for resource in self.given)


@dataclass(frozen=True)
class VictimPool:
    """Those who may be reclaimed; `Residents.in_pool` tells who they are.

    `surplus` is what may be taken of each project. With `last_may_pass` the last victim of a project may take it below
    that line; without, none may. Of `own`, workloads of a priority below `below` may be taken whatever it holds, unless
    they need no more than `spared`, and `due` milli-GPU of them have to be. Where there are `guests_of` a project, work
    without a GPU of all others may be taken as well: it is a guest beside GPUs. Where there are `lines`, of this only
    what its project has beyond its own line; `due_beside` is as `due` of other resources. At `now` one ran long enough
    that began `least` microseconds ago, or what `least_of` says for its project; `taken` terminate already. With
    `everyone`, whoever runs counts, to tell which places become free soonest; with `soon_only` only who can be
    reclaimed or whose end is known, with `ends_only` only whose end is known, with `movable` only who can be reclaimed,
    ran long enough, and was moved less often than that, and with `of` only who is of these projects. With
    `extras_alone` it is of its own the further containers of gangs. Where there are some `alone`, nobody else is; where
    some are `beyond`, nobody else who has GPUs in another project than `own`. The projects `together` have to give up
    `due_together` milli-GPU, whichever of them does. All this is so by a `right`.
    """

    surplus: Mapping[str, int] = field(default_factory=dict)
    last_may_pass: bool = False
    own: str = ""
    below: int = 0
    spared: int = -1
    due: int = 0
    due_beside: Mapping[Resource, int] = field(default_factory=dict)
    guests_of: str | None = None
    lines: Mapping[str, Line] | None = None
    now: int = 0
    least: int = 0
    least_of: Mapping[str, int] = field(default_factory=dict)
    taken: Collection[str] = frozenset()
    everyone: bool = False
    soon_only: bool = True
    ends_only: bool = False
    movable: int | None = None
    of: frozenset[str] | None = None
    extras_alone: bool = False
    alone: frozenset[str] | None = None
    beyond: frozenset[str] | None = None
    due_together: int = 0
    together: frozenset[str] = frozenset()
    right: Right = Right.PRIORITY

    @property
    def owes(self) -> bool:
        """Whether an amount of its own is due, or of those together."""
        return self.due > 0 or self.due_together > 0 or bool(self.due_beside)

    @property
    def owing(self) -> Collection[str]:
        """The projects of which something is due."""
        return {self.own, *(self.together if self.due_together else ())} if self.owes else ()

    @property
    def projects(self) -> Sequence[str] | None:
        """The projects that it concerns; None is every one."""
        return None if self.everyone else [*self.surplus, *([self.own] if self.own else [])]


class Taken:
    """Those taken from a pool so far: how much of each project, and who may go beside them."""

    def __init__(self, pool: VictimPool) -> None:
        self.milli = 0
        self._pool = pool
        self._of: Counter[str] = Counter()
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)
        self._own: Counter[Resource] = Counter()
        self._given_together = 0
        self._beside: defaultdict[str, list[int]] = defaultdict(list)

    def allows(self, workload: Workload) -> bool:
        """Return whether one more may be taken; never again once it may not, as long as more are taken."""
        name, milli = workload.project, workload.total_milli
        if self._pool.everyone or name == self._pool.own:
            return True
        if not milli and self._pool.lines is not None:
            return self._is_beyond(self._pool.lines.get(name), workload)
        if not milli and self._pool.guests_of is not None:
            return True
        total, surplus = self._of[name] + milli, self._pool.surplus.get(name, 0)
        if not self._pool.last_may_pass:
            return total <= surplus
        return total - max([milli, *self._sizes[name][-1:]]) < surplus

    def add(self, workload: Workload) -> None:
        """Take one."""
        self._count(workload, 1)
        if workload.project == self._pool.own:
            return  # nobody asks of what sizes these are: all of them may go
        insort(self._sizes[workload.project], workload.total_milli)
        if self._pool.lines and (line := self._pool.lines.get(workload.project)):
            insort(self._beside[workload.project], workload.amount(line.resource))

    def remove(self, workload: Workload) -> None:
        """Give one back."""
        self._count(workload, -1)
        if workload.project == self._pool.own:
            return
        self._sizes[workload.project].remove(workload.total_milli)
        if self._pool.lines and (line := self._pool.lines.get(workload.project)):
            self._beside[workload.project].remove(workload.amount(line.resource))

    def owed(self) -> int:
        """Return how many milli-GPU the project still has to give up of its own, or those together."""
        own = max(0, self._pool.due - self._of[self._pool.own]) if self._pool.due else 0
        return max(own, self._pool.due_together - self._given_together) if self._pool.due_together else own

    def is_owed(self) -> bool:
        """Return whether the project still has to give up something of its own."""
        if self.owed():
            return True
        due = self._pool.due_beside
        return bool(due) and any(self._own[resource] < amount for resource, amount in due.items())

    def _is_beyond(self, line: Line | None, workload: Workload) -> bool:
        """Return whether work without GPUs goes beyond the quotas of its project, after what was taken of that."""
        if line is None or not line.has_right(workload):
            return True
        amount, taken = workload.amount(line.resource), self._beside[workload.project]
        if not amount:
            return False
        total = sum(taken) + amount
        return total - (max([amount, *taken[-1:]]) - 1 if self._pool.last_may_pass else 0) <= line.surplus

    def _count(self, workload: Workload, sign: int) -> None:
        self.milli += sign * workload.total_milli
        self._of[workload.project] += sign * workload.total_milli
        if workload.project in self._pool.together:
            self._given_together += sign * workload.total_milli
        if self._pool.due_beside and workload.project == self._pool.own:
            for resource in self._pool.due_beside:
                self._own[resource] += sign * workload.amount(resource)
