"""Which rule a denied call fell under, and what keeps a sandbox from being held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.agent.sandbox.confinement import confinement_of, rule_for
from common.errors import InputError
from common.protocol import ContainerSpec
from common.sandbox import Sandbox, SandboxRule


def rules(*made: dict[str, Any]) -> list[SandboxRule]:
    return [SandboxRule.model_validate(each) for each in made]


def spec(sandbox: Sandbox | None) -> ContainerSpec:
    return ContainerSpec(id="c1", session_id="s1", session_name="a", project="p", user="u", image="i", sandbox=sandbox)


def test_the_first_rule_that_fits_says_what_happens() -> None:
    made = rules(
        {"calls": ["socket"], "when": [{"argument": 0, "values": [17]}], "errno": "EAFNOSUPPORT"},
        {"calls": ["socket", "bind"], "errno": "EACCES"},
    )
    assert [rule_for(made, "socket", (family, 0, 0, 0, 0, 0)).errno for family in (17, 2)] == ["EAFNOSUPPORT", "EACCES"]
    assert rule_for(made, "bind", (17, 0, 0, 0, 0, 0)).errno == "EACCES"


def test_what_32_bit_programs_call_instead_falls_under_the_rule_of_what_it_stands_for() -> None:
    made = rules({"calls": ["mkdir"]}, {"calls": ["socket"], "when": [{"argument": 0, "values": [17]}], "ends": True})
    assert rule_for(made, "socketcall", (1, 0, 0, 0, 0, 0)).ends
    assert rule_for(made, "unheard", (0,) * 6) == SandboxRule(calls=["unheard"])


def test_of_calls_that_32_bit_programs_have_twice_the_rule_of_the_one_is_that_of_the_other() -> None:
    made = rules(
        {"calls": ["chown"], "when": [{"argument": 1, "values": [7]}], "errno": "EROFS"},
        {"calls": ["chown", "mkdir"], "errno": "EACCES"},
    )
    assert [rule_for(made, "chown32", (0, owner, 0, 0, 0, 0)).errno for owner in (7, 8)] == ["EROFS", "EACCES"]


def test_a_container_is_confined_as_its_specification_says() -> None:
    assert confinement_of(spec(None), Path("/s")) is None
    sandbox = Sandbox(name="strict", rules=rules({"calls": ["mkdir"]}))
    confined = confinement_of(spec(sandbox), Path("/s"))
    assert confined
    assert (confined.id, confined.session_id, confined.listener, confined.sandbox) == ("c1", "s1", "/s", sandbox)


def test_a_call_that_nobody_knows_is_refused_by_its_place() -> None:
    made = rules({"calls": ["mkdir"]}, {"calls": ["unshare", "mkdirrat"]})
    with pytest.raises(InputError) as refused:
        confinement_of(spec(Sandbox(name="strict", rules=made)), Path("/s"))
    [problem] = refused.value.problems
    assert problem.where == "sandbox.rules.1.calls"
    assert "mkdirrat" in problem.reason
