"""Exposition: what Prometheus reads of the site and of this process. No label names a user, a project or a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from api.control.manager import Manager
from api.database import Database
from api.endpoints.traffic import Traffic
from api.lists.load import Load
from api.tables.sessions import ENDED, State

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MILLI = 1000


class _Found:
    """Metrics as a collector."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def text(families: Iterable[Metric], traffic: Traffic) -> bytes:
    """Return metrics and traffic in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Found(families))
    return generate_latest(registry) + generate_latest(traffic.registry)


def of_load(load: Load, idle_milli: int) -> Iterator[Metric]:
    """Yield how many sessions there are by state, and the GPUs that there are, are held, and are idle though held."""
    sessions = GaugeMetricFamily("penstock_sessions", "Sessions that have not ended.", labels=("state",))
    for state in State:
        if state not in ENDED:
            sessions.add_metric((state,), load.sessions.get(state, 0))
    yield sessions
    yield GaugeMetricFamily("penstock_gpus", "GPUs of all nodes.", load.gpu_milli / MILLI)
    yield GaugeMetricFamily("penstock_gpus_held", "GPUs that sessions hold.", load.held_milli / MILLI)
    # what is remembered may have been given back meanwhile
    idle = min(idle_milli, load.held_milli) / MILLI
    yield GaugeMetricFamily("penstock_gpus_idle", "GPUs that were held and did nothing for ten minutes.", idle)


def of_process(manager: Manager, database: Database) -> Iterator[Metric]:
    """Yield when this process last served the queue, for how long, and what it has of connections to the database."""
    if (age := manager.queue_age_s) is not None:
        yield GaugeMetricFamily("penstock_scheduler_age_seconds", "Since the queue was last looked at.", age)
    if (took := manager.cycle_s) is not None:
        yield GaugeMetricFamily("penstock_scheduler_cycle_seconds", "How long the last cycle took.", took)
    connections = GaugeMetricFamily(
        "penstock_database_connections", "Connections of the API's pool: at work, and all.", labels=("kind",)
    )
    at_work, most = database.connections()
    connections.add_metric(("busy",), at_work)
    connections.add_metric(("limit",), most)
    yield connections
