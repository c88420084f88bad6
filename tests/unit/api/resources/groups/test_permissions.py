"""Rows P1 to P3 and C10: who may use which resource group, and which nodes are in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from api.resources.groups.permissions import Group, Permissions
from api.resources.groups.selection import Selectors, Traits, is_model
from api.tables.sessions import Kind

USER1, USER2, SOMEBODY = uuid4(), uuid4(), uuid4()


@dataclass(frozen=True)
class Project:
    id: UUID = field(default_factory=uuid4)
    training_group: str | None = None
    interactive_group: str | None = None


PROJECT3, PROJECT4, OTHER = Project(), Project(), Project()

P2 = Permissions(
    [
        Group("a-v100", users=frozenset([USER1, USER2])),
        Group("b-p100", users=frozenset([USER2]), projects=frozenset([PROJECT3.id])),
        Group("aws", projects=frozenset([PROJECT3.id])),
        Group("azure", projects=frozenset([PROJECT4.id])),
    ],
    {},
)


@pytest.mark.parametrize(
    ("user", "project", "groups"),
    [
        (USER1, OTHER, ("a-v100",)),
        (USER2, OTHER, ("a-v100", "b-p100")),
        (SOMEBODY, PROJECT3, ("aws", "b-p100")),
        (SOMEBODY, PROJECT4, ("azure",)),
        (SOMEBODY, OTHER, ()),
        (USER1, PROJECT4, ("a-v100", "azure")),
        (None, PROJECT3, ("aws", "b-p100")),
    ],
    ids=["user1", "user2", "project3", "project4", "a stranger", "user1 in project4", "a user who is gone"],
)
def test_the_permission_table(user: UUID | None, project: Project, groups: tuple[str, ...]) -> None:
    """P2: A is V100, B is P100; user1 has A only, user2 A and B, project3 B and AWS, project4 Azure only."""
    for kind in Kind:
        assert P2.allowed(user, project, kind) == (groups, False), "and nodes in no group besides"
    for name in ("a-v100", "b-p100", "aws", "azure", "unknown"):
        wanted = (name,) if name in groups else ()
        assert P2.allowed(user, project, Kind.TRAINING, name) == (wanted, True), "what was asked for, or nothing"


def test_without_groups_every_node_may_be_used() -> None:
    assert Permissions([], {}).allowed(USER1, OTHER, Kind.TRAINING) == (None, False)


def test_the_own_groups_come_before_those_for_everybody() -> None:
    groups = [Group("all", open=True), Group("own", users=frozenset([USER1])), Group("any", open=True)]
    permissions = Permissions(groups, {})
    assert permissions.allowed(USER1, OTHER, Kind.TRAINING)[0] == ("own", "all", "any")
    assert permissions.allowed(USER2, OTHER, Kind.TRAINING)[0] == ("all", "any")


def test_affinity_is_by_kind_and_is_a_permission() -> None:
    project = Project(training_group="night", interactive_group="day")
    permissions = Permissions([Group("night"), Group("day"), Group("all", open=True)], {})
    assert permissions.allowed(USER1, project, Kind.TRAINING) == (("night",), True)
    assert permissions.allowed(USER1, project, Kind.SERVICE) == (("night",), True)
    assert permissions.allowed(USER1, project, Kind.INTERACTIVE) == (("day",), True)
    assert permissions.allowed(USER1, project, Kind.INTERACTIVE, "day") == (("day",), True)
    assert permissions.allowed(USER1, project, Kind.INTERACTIVE, "all") == ((), True), "not even an open one"
    half = Project(training_group="night")
    assert permissions.allowed(USER1, half, Kind.INTERACTIVE) == (("all",), False)


def test_groups_of_a_domain_are_for_its_users() -> None:
    groups = [Group("acme", open=True, domain="acme"), Group("own", domain="acme", projects=frozenset([OTHER.id]))]
    permissions = Permissions([*groups, Group("all", open=True)], {USER1: "acme", USER2: "other"})
    assert permissions.allowed(USER1, OTHER, Kind.TRAINING)[0] == ("own", "acme", "all")
    assert permissions.allowed(USER2, OTHER, Kind.TRAINING)[0] == ("all",)
    assert permissions.allowed(SOMEBODY, OTHER, Kind.TRAINING)[0] == ("all",)


@pytest.mark.parametrize(
    ("wanted", "model", "same"),
    [
        ("v100", "Tesla V100-SXM2-16GB", True),
        ("V100-SXM2", "Tesla V100-SXM2-16GB", True),
        ("V100-16GB", "Tesla V100-SXM2-16GB", False),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("simulated gpu", "Simulated GPU", True),
        ("H100 80GB", "NVIDIA H100 80GB HBM3", True),
    ],
)
def test_models_are_named_by_their_words(wanted: str, model: str, same: bool) -> None:
    assert is_model(wanted, model) is same


V100 = Traits("n1", "seoul", "leaf1", frozenset(["Tesla V100"]))
P100 = Traits("n2", "seoul", "leaf2", frozenset(["Tesla P100"]))
MIXED = Traits("n3", "seoul", "leaf1", frozenset(["Tesla V100", "Tesla P100"]))
CPU = Traits("n4", "busan", "leaf1")


@pytest.mark.parametrize(
    ("selectors", "nodes"),
    [
        (Selectors(), []),
        (Selectors(gpu_model="V100"), [V100]),
        (Selectors(gpu_model="tesla"), [V100, P100, MIXED]),
        (Selectors(switch="leaf1"), [V100, MIXED, CPU]),
        (Selectors(gpu_model="V100", switch="leaf2"), []),
        (Selectors(switch="leaf1", region="busan"), [CPU]),
        (Selectors(region="seoul"), [V100, P100, MIXED]),
    ],
)
def test_selectors_ask_for_all_that_they_name(selectors: Selectors, nodes: list[Traits]) -> None:
    assert [node for node in (V100, P100, MIXED, CPU) if selectors.match(node)] == nodes
