"""Verdict on a site: checks of one form, what they say of each node, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any


class CheckState(StrEnum):
    """What a check came to. `unknown` means that it could not be looked at, which is not good either."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


GOOD = (CheckState.OK, CheckState.WARN)
"""States that a site may be handed over with."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    `id` is what programs know it by, `name` what it claims, `subject` what it is about: a node, or a thing of one.
    `evidence` is what was seen, `hint` what to do about it, `since` the first moment at which a verdict had this state.
    """

    id: str
    name: str
    state: CheckState
    evidence: str
    hint: str = ""
    subject: str = ""
    since: str = ""

    @classmethod
    def of(cls, identity: str, name: str, *, ok: bool, evidence: str, hint: str = "", subject: str = "") -> Check:
        """Return a check that holds or fails; the hint is for one that fails."""
        state = CheckState.OK if ok else CheckState.FAIL
        return cls(identity, name, state, evidence, "" if ok else hint, subject)

    @property
    def ok(self) -> bool:
        """Say whether it is as it should be, or near enough."""
        return self.state in GOOD

    @property
    def key(self) -> str:
        """What tells it from the others of its node."""
        return f"{self.id} {self.subject}"


@dataclass
class NodeVerdict:
    """The checks of one node, and what the report says about it."""

    checks: list[Check]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Say whether every check holds."""
        return all(check.ok for check in self.checks)

    def json(self) -> dict[str, Any]:
        """Return it as plain data."""
        checks = [asdict(check) | {"ok": check.ok} for check in self.checks]
        return {"ok": self.ok, "checks": checks, "facts": self.facts}


@dataclass
class Verdict:
    """What the site is like at one moment; `time` is UTC."""

    site: str
    time: str
    nodes: dict[str, NodeVerdict]

    @property
    def ok(self) -> bool:
        """Say whether every node is as it should be."""
        return all(node.ok for node in self.nodes.values())

    @property
    def state(self) -> CheckState:
        """The worst state of any check."""
        return max((check.state for check in self.checks), key=list(CheckState).index, default=CheckState.OK)

    @property
    def checks(self) -> Iterator[Check]:
        """All checks of all nodes."""
        return (check for node in self.nodes.values() for check in node.checks)

    def json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        nodes = {name: node.json() for name, node in self.nodes.items()}
        return {"ok": self.ok, "state": self.state, "site": self.site, "time": self.time, "nodes": nodes}

    def add(self, node: str, checks: Iterable[Check]) -> None:
        """Add checks of a node."""
        self.nodes[node].checks += [replace(check, subject=_subject(node, check.subject)) for check in checks]

    def date(self, before: Mapping[str, Any]) -> None:
        """Say of each check since when it is as it is, by the plain data of the verdict before this one."""
        known = {
            (name, f"{check['id']} {check['subject']}", check["state"]): check["since"]
            for name, node in before.get("nodes", {}).items()
            for check in node["checks"]
        }
        for name, node in self.nodes.items():
            node.checks = [
                replace(check, since=known.get((name, check.key, check.state), self.time)) for check in node.checks
            ]


def _subject(node: str, thing: str) -> str:
    return f"{node}: {thing}" if thing else node
