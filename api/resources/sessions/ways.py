"""The ways between GPUs that a session asks for: P2P by NVLink in a node, RDMA between nodes. Pure.

What a request asks for by an option it does not also set by NCCL's own variables; where it asks for nothing, NCCL
chooses, and the variables are the user's.
"""

from __future__ import annotations

from api.resources.nodes.traits import is_of_whole_gpus
from api.resources.sessions.schemas import SessionRequest
from api.tables.sessions import Session
from common.errors import InputError
from common.gpu.share import MILLI
from common.sentence import Sentence
from common.topology import TopologyLevel

P2P_VARIABLES = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
RDMA_VARIABLES = ("NCCL_IB_DISABLE", "NCCL_NET")


def check(request: SessionRequest, gpu_milli: int) -> None:
    """Refuse ways that a session with so many milli-GPU in each container cannot take; raises InputError."""
    if request.p2p and gpu_milli < 2 * MILLI:
        raise InputError(
            Sentence("P2P leads from GPU to GPU, and one container asks for less than two"),
            where="p2p",
            hint=Sentence("ask for more GPUs in a container, or leave it out"),
        )
    for field, wanted in (("p2p", request.p2p), ("rdma", request.rdma)):
        if wanted and not is_of_whole_gpus(gpu_milli):
            raise InputError(
                Sentence("a part of a GPU has neither P2P nor RDMA: others would reach the memory of all who share it"),
                where=field,
                hint=Sentence("ask for whole GPUs, or leave it out"),
            )
    if request.rdma and request.most_replicas == 1:
        raise InputError(
            Sentence("RDMA leads from node to node, and one container is on one"),
            where="rdma",
            hint=Sentence("ask for several replicas, or leave it out"),
        )
    if request.p2p is not None:
        _check_said_once(request, "p2p", P2P_VARIABLES)
    if request.rdma:
        _check_said_once(request, "rdma", RDMA_VARIABLES)


def within(request: SessionRequest) -> TopologyLevel:
    """Return how near the GPUs have to be: those of a container that asks for P2P are in one NVLink island."""
    return TopologyLevel.ISLAND if is_in_one_island(request) else request.within


def is_in_one_island(request: SessionRequest) -> bool:
    """Return whether P2P is asked for by the only container of a session."""
    return bool(request.p2p) and request.replicas == 1


def environment(session: Session) -> dict[str, str]:
    """Return what tells NCCL of the ways; who asks for one finds in the log which was taken."""
    forbidden = {"NCCL_P2P_DISABLE": "1"} if session.p2p is False else {}
    return {**forbidden, **({"NCCL_DEBUG": "INFO"} if session.p2p or session.rdma else {})}


def _check_said_once(request: SessionRequest, option: str, variables: tuple[str, ...]) -> None:
    if said := [name for name in variables if name in request.environment]:
        raise InputError(
            Sentence("{variable} says of {option} what the option says", variable=said[0], option=option),
            where="environment",
            hint=Sentence("leave one of both out"),
        )
