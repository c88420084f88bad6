"""The confinement of one container: what its filter, and whoever listens to it, have to know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from appliance.agent.sandbox import profile
from common import syscalls
from common.errors import InputError, Problem
from common.protocol import ContainerSpec
from common.sandbox import Sandbox, SandboxRule


class Confinement(BaseModel):
    """What a container's filter and its listener need to know; `listener` is the socket that tells the agent."""

    id: str
    session_id: str
    listener: str
    sandbox: Sandbox


def confinement_of(spec: ContainerSpec, listener: Path) -> Confinement | None:
    """Return how the container of `spec` is confined; None where it has no sandbox.

    Raises InputError for a call that nobody knows: a filter would pass over it in silence.
    """
    if spec.sandbox is None:
        return None
    named = [(number, call) for number, rule in enumerate(spec.sandbox.rules) for call in rule.calls]
    if unknown := [(number, call) for number, call in named if not syscalls.is_known(call)]:
        raise InputError.of(
            [
                Problem(f"sandbox.rules.{number}.calls", f"this node knows no system call {call}", "correct its name")
                for number, call in unknown
            ]
        )
    return Confinement(id=spec.id, session_id=spec.session_id, listener=str(listener), sandbox=spec.sandbox)


def rule_for(rules: Sequence[SandboxRule], call: str, arguments: Sequence[int]) -> SandboxRule:
    """Return the first rule that denies a call; the filter has found one."""
    for rule in rules:
        if call in profile.with_second(rule.calls) and all(
            profile.passes(test.model_dump(), arguments) for test in rule.when
        ):
            return rule
    # what 32-bit programs call instead is denied with the rule of what it stands for
    for rule in rules:
        if any(profile.GATHERED.get(name) == call for name in rule.calls):
            return rule
    return SandboxRule(calls=[call])
