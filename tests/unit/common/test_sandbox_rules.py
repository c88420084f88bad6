"""Rules of sandboxes as people write them, one line each."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import InputError
from common.sandbox_rules import format_rule, parse_rule

RULES = [
    {"calls": ["mkdir", "mkdirat"], "when": [], "errno": "EROFS", "ends": False},
    {"calls": ["socket"], "when": [{"argument": 0, "values": [16, 17], "bits": 0}], "errno": "EPERM", "ends": True},
]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mkdir", {"calls": ["mkdir"], "errno": "EPERM", "ends": False}),
        ("mkdir,mkdirat:EROFS", {"calls": ["mkdir", "mkdirat"], "errno": "EROFS", "ends": False}),
        ("ptrace:kill", {"calls": ["ptrace"], "ends": True}),
        (
            "socket(0=16|0x11):kill",
            {"calls": ["socket"], "ends": True, "when": [{"argument": 0, "values": [16, 17]}]},
        ),
        (
            "clone(0&0x10000000, 2=0)",
            {
                "calls": ["clone"],
                "errno": "EPERM",
                "ends": False,
                "when": [{"argument": 0, "bits": 1 << 28}, {"argument": 2, "values": [0]}],
            },
        ),
    ],
)
def test_a_rule_is_one_line(text: str, rule: dict[str, Any]) -> None:
    assert parse_rule(text, "rules") == rule


@pytest.mark.parametrize("text", ["", "mkdir:", "mkdir:eperm", "socket(0)", "socket()", "socket(0=x)", "a b(0>1)"])
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_rule(text, "rules")
    assert refused.value.problems[0].where == "rules"
    assert "write it like" in refused.value.problems[0].hint


@pytest.mark.parametrize("rule", RULES)
def test_what_is_shown_can_be_written_again(rule: Any) -> None:
    written = parse_rule(format_rule(rule), "rules")
    whole = {"when": [], "errno": "EPERM"} | written
    whole["when"] = [{"values": [], "bits": 0} | test for test in whole["when"]]
    assert whole == rule
