"""The repairs of known issues: the words by which an issue is known, and the rungs of its ladder in order. Pure.

A ladder itself is `playbooks/repair/<id>.yml`; a test holds it against what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from common.errors import NotFoundError
from common.sentence import Sentence, Several

REBOOT = "reboot"
TRIES = 3
WITHIN = timedelta(minutes=10)
"""A repair is tried so often on a node within so long."""


class RunState(StrEnum):
    """What has become of a run.

    It is `healthy` where no node had the symptom, `repaired` where none has it any more, `rehearsed` after a dry run
    that found it, `stopped` where a ladder did not help, `refused` where a rule forbade it before anything was done,
    `interrupted` where it ended without a word, and `cancelled` where it was called back before it began.
    """

    ORDERED = "ordered"
    RUNNING = "running"
    HEALTHY = "healthy"
    REPAIRED = "repaired"
    REHEARSED = "rehearsed"
    STOPPED = "stopped"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


OPEN = frozenset({RunState.ORDERED, RunState.RUNNING})
GOOD = frozenset({RunState.HEALTHY, RunState.REPAIRED, RunState.REHEARSED})


@dataclass(frozen=True)
class Repair:
    """A ladder for one known issue.

    `symptoms` are the words by which people know it, `looks_for` says what is looked at. With `spreads` it may be on
    all nodes at once without a cause in common, and no share of them stops it.
    """

    id: str
    symptoms: tuple[str, ...]
    looks_for: str
    rungs: tuple[str, ...]
    spreads: bool = False

    @property
    def playbook(self) -> str:
        """The playbook of the ladder."""
        return f"repair/{self.id.lower()}"


RUNGS: dict[str, str] = {
    "start_edge": "start the edge",
    "install_edge": "configure the edge anew and start it",
    "start_master": "start what does not run of the database, the control API and both edges",
    "restart_api": "end the control API, hung or not, and start it again",
    "restart_database": "restart the database",
    "restart_registration": "restart the control API, then the edge of agents",
    "start_worker": "start what does not run of the container engine and the agent",
    "start_services": "start what does not run of all services that the node has",
    "restart_agent": "end what an agent left on its port, end the agent, hung or not, and start it again",
    "join_worker": "bring certificate and agent anew, start the container engine, and connect again",
    REBOOT: "reboot the node",
    "publish_images": "publish what the registry lacks of the images again",
    "register_images": "register them with the control API again",
    "pull_images": "pull them again",
}
"""What each rung does. Only a reboot ends sessions: those of an agent or a container engine go on without it."""

_ALL = (
    Repair("5-A", ("no web page after install",), "the console answers", ("start_edge", "install_edge")),
    Repair("5-B", ('"Error" on the web page',), "the control API answers 200", ("start_master",)),
    Repair("5-C", ("5-B did not help",), "the control API answers 200", ("start_master", "restart_api")),
    Repair(
        "5-D",
        ("Get node network interface error", "interfaces error (check worker status)"),
        "the agent answers the master, and all services of the node run",
        ("start_worker", "start_services"),
    ),
    Repair("5-E", ("5-D did not help",), "the agent answers the master", ("start_worker", "restart_agent")),
    Repair(
        "5-F",
        ("Failed to get node info",),
        "the control API lists its nodes, and its edge of agents answers",
        ("restart_database", "restart_registration"),
    ),
    Repair("5-G", ("Attach Error",), "the agent answers the master, and the node is not lost", ("join_worker", REBOOT)),
    Repair(
        "5-H1",
        ("[Error: Worker connection error]",),
        "the agent answers the master",
        ("start_worker", "restart_agent"),
    ),
    Repair(
        "5-H2",
        ("[Error : NodeStatusUnknown]",),
        "the agent answers the master, and the node is not lost",
        ("restart_agent", "join_worker"),
    ),
    Repair(
        "5-I",
        ("default image deleted",),
        "the publication's images are in the registry, listed, and on the workers",
        ("start_services", "publish_images", "register_images", "start_master", "pull_images", "start_worker"),
        spreads=True,
    ),
)
REPAIRS: dict[str, Repair] = {repair.id: repair for repair in _ALL}

REPAIR_OF: dict[str, str] = {
    "agent": "5-H2",
    "database": "5-C",
    "edge": "5-A",
    "engine": "5-D",
    "registry": "5-I",
    "service": "5-D",
}
"""The checks of health that have a repair, by their ids."""

OF_AGENTS = frozenset({"engine", "service"})
"""Those of them that a node's agent looks at; what it says of others is no reason for a repair."""


def most_unhealthy(nodes: int, percentage: int) -> int:
    """Return how many nodes may be unhealthy while one is repaired: one alone never is too many, unless none may be."""
    return max(nodes * percentage // 100, 1 if percentage else 0)


def find(identity: str) -> Repair:
    """Return a repair by its id, in capital letters or not; raises NotFoundError."""
    if (repair := REPAIRS.get(identity.upper())) is None:
        hint = Sentence("choose of {names}", names=Several(REPAIRS))
        raise NotFoundError(Sentence("there is no repair {id}", id=identity), where="repair", hint=hint)
    return repair
