"""Verdict on a site: checks of one form, what they say of each node, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from common.checks import Check, CheckState

WORSE = (CheckState.OK, CheckState.WARN, CheckState.UNKNOWN, CheckState.FAIL)
"""The states of a check, each worse for who is to take over the site than the one before."""


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
        return max((check.state for check in self.checks), key=WORSE.index, default=CheckState.OK)

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
        known = _moments(before)
        for name, node in self.nodes.items():
            node.checks = [
                replace(check, since=known.get((name, check.key, check.state), self.time)) for check in node.checks
            ]


def _moments(verdict: Mapping[str, Any]) -> dict[tuple[str, str, str], str]:
    """Return since when each check is as a verdict's plain data say; nothing where another release wrote them."""
    try:
        return {
            (name, f"{check['id']} {check['subject']}", check["state"]): check["since"]
            for name, node in verdict.get("nodes", {}).items()
            for check in node["checks"]
        }
    except (KeyError, TypeError, AttributeError):
        return {}


def _subject(node: str, thing: str) -> str:
    return f"{node}: {thing}" if thing else node
