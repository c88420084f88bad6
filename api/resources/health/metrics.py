"""Checks and nodes in the text format of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from api.resources.health.schemas import CheckView
from api.tables.nodes import Node
from common.health import gravity

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(checks: Iterable[CheckView], nodes: Iterable[tuple[Node, bool]]) -> str:
    """Return checks and nodes, each with whether it takes new sessions, a line each."""
    return "".join(f"{line}\n" for line in [*_checks(checks), *_nodes(nodes)])


def _checks(checks: Iterable[CheckView]) -> Iterator[str]:
    yield "# HELP penstock_check_state How a check is: 0 ok, 1 unknown, 2 warn, 3 fail."
    for check in checks:
        labels = {"node": check.node, "check": check.check, "thing": check.thing, "repair": check.repair}
        labels["acknowledged"] = "yes" if check.acknowledged_until else "no"
        yield f"penstock_check_state{_labels(labels)} {gravity(check.state)}"


def _nodes(nodes: Iterable[tuple[Node, bool]]) -> Iterator[str]:
    yield "# HELP penstock_node_open Whether a node takes new sessions."
    for node, is_open in nodes:
        labels = _labels({"node": node.name, "state": node.state, "mode": node.mode})
        yield f"penstock_node_open{labels} {int(is_open)}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
