"""The way of a deploy over the nodes: who is fit, who comes first, and waves of workers after that.

Reservoir, master and storage are what all others stand on: where one of them fails, everything stops. A worker that is
unfit, does not answer or fails is left out, and the others go on, unless too many are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.site import playbook, preflight
from appliance.site.waves import Plan
from common.errors import InputError, PartialError, PenstockError, Problem, ProcessError

KEPT = "penstock_kept"
STOPPED = "the deploy stopped before it was done with this node"
AGAIN = "deploy again when the cause is mended"

Problems = dict[str, list[Problem]]
"""What is wrong, by the name of the node."""

Said = Mapping[str, Mapping[str, Any]]
"""What nodes published, by their names and by those of the values."""


@dataclass
class Rollout:
    """Goes to the nodes of a `plan`, and remembers who was left out and why, and who came to the end.

    `run` runs a playbook on an inventory such as `hosts`, and `told` hears what came of it.
    """

    plan: Plan
    hosts: Mapping[str, Any]
    run: Callable[..., playbook.Result]
    told: Callable[[playbook.Result], None] = lambda _: None
    left_out: Problems = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)

    def preflight(self, asked: Mapping[str, Any], unfit: Callable[[Said], Problems]) -> Said:
        """Leave out the workers that are not fit; raises ProcessError or InputError where the others must not go on.

        `asked` is the inventory with what nodes are asked, and `unfit` judges what they say, which is returned. Nothing
        is changed on any.
        """
        result = self.run("preflight", asked, publish=preflight.PUBLISHED, limit=self.plan.nodes)
        silent = result.failed()
        wrong = silent | unfit(result.published)
        self._leave_out(wrong)
        if needed := [problem for name in self.plan.first for problem in wrong.get(name, ())]:
            kind = ProcessError if silent.keys() & set(self.plan.first) else InputError
            raise kind.of([*needed, *self._reasons()])
        self._require_workers(InputError)
        return result.published

    def install(self) -> None:
        """Install the nodes; raises ProcessError where one that all need fails, or too many workers do."""
        first = self._run("nodes", self.plan.first, together=True)
        first.require_success()
        self.reached += self.plan.first
        workers = [name for name in self.plan.workers if name not in self.left_out]
        try:
            for wave in self.plan.waves(workers):
                failed = self._run("nodes", wave, together=False).failed()
                self.reached += [name for name in wave if name not in failed]
                self._leave_out(failed)
                self._require_workers(ProcessError)
        finally:
            for name in workers:
                if name not in self.reached:
                    self.left_out.setdefault(name, [Problem(name, STOPPED, AGAIN)])
        # agents of an earlier release call the former edge, until they have been replaced
        self._run("edge", self.plan.first, together=True).require_success()

    def _run(self, name: str, nodes: Any, *, together: bool) -> playbook.Result:
        result = self.run(name, self.hosts, publish=[KEPT], limit=nodes, together=together)
        self.told(result)
        return result

    def _leave_out(self, wrong: Problems) -> None:
        self.left_out.update({name: wrong[name] for name in self.plan.workers if name in wrong})

    def _require_workers(self, kind: type[PenstockError]) -> None:
        """Raise `kind` where more workers are left out than may be."""
        if len(self.left_out) <= self.plan.most:
            return
        too_many = Problem(
            "deploy.max_fail_percentage",
            f"{len(self.left_out)} of {len(self.plan.workers)} workers cannot be deployed, and "
            f"{self.plan.most or 'none'} may be left out",
            "mend them, name the others with --limit, or raise max_fail_percentage in the site file",
        )
        raise kind.of([too_many, *self._reasons()])

    def _reasons(self) -> list[Problem]:
        return [problem for problems in self.left_out.values() for problem in problems]


def require_all(left_out: Problems) -> None:
    """Raise PartialError that names who was left out, and why."""
    if left_out:
        raise PartialError.of([problem for problems in left_out.values() for problem in problems])
