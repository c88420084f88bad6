"""Traits: what a node has or lacks as a whole, by the names that people read. Pure.

A workload that needs some runs only where none of them is lacking.
"""

from __future__ import annotations

from common.gpu.share import MILLI

P2P = "P2P by NVLink"
RDMA = "RDMA"
FIELDS = {P2P: "p2p", RDMA: "rdma"}
"""The fields by which sessions ask for them."""


def lacking(*, nvlink: bool, rdma: bool, no_rdma: str) -> tuple[tuple[str, str], ...]:
    """Return the traits that a node lacks, each with the reason."""
    lacks = [] if nvlink else [(P2P, "no NVLink joins its GPUs")]
    lacks += [] if rdma else [(RDMA, no_rdma or "its agent tells of no InfiniBand")]
    return tuple(lacks)


def needed(*, p2p: bool | None, rdma: bool) -> tuple[str, ...]:
    """Return the traits that a session needs which asks for these."""
    return ((P2P,) if p2p else ()) + ((RDMA,) if rdma else ())


def is_of_whole_gpus(gpu_milli: int) -> bool:
    """Return whether a container that asks for so much has no part of a GPU."""
    return gpu_milli % MILLI == 0
