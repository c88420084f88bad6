"""Topology levels: how near to each other the containers of a session have to be."""

from __future__ import annotations

from enum import StrEnum


class TopologyLevel(StrEnum):
    """The smallest part of the network that the containers of one workload must, or should, share."""

    ANYWHERE = "anywhere"
    SWITCH = "switch"
    NODE = "node"
    ISLAND = "island"
