"""Checks and nodes as metrics of Prometheus. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from api.resources.health.schemas import CheckView
from api.tables.nodes import Node, NodeState
from common.health import gravity


def families(checks: Iterable[CheckView], nodes: Iterable[tuple[Node, bool]]) -> Iterator[Metric]:
    """Yield how each check is, of each node whether it takes new sessions, and how many agents report."""
    states = GaugeMetricFamily(
        "penstock_check_state",
        "How a check is: 0 ok, 1 unknown, 2 warn, 3 fail.",
        labels=("node", "check", "thing", "repair", "acknowledged"),
    )
    for check in checks:
        acknowledged = "yes" if check.acknowledged_until else "no"
        labels = (check.node, check.check, check.thing, check.repair, acknowledged)
        states.add_metric(labels, gravity(check.state))
    yield states
    opened = GaugeMetricFamily(
        "penstock_node_open", "Whether a node takes new sessions.", labels=("node", "state", "mode")
    )
    agents: Counter[NodeState] = Counter()
    for node, is_open in nodes:
        opened.add_metric((node.name, node.state, node.mode), int(is_open))
        agents[node.state] += 1
    yield opened
    count = GaugeMetricFamily("penstock_agents", "Nodes by whether their agents report.", labels=("state",))
    for state in NodeState:
        count.add_metric((state,), agents[state])
    yield count
