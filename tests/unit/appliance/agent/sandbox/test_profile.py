"""How rules change the engine's filter: what they deny is asked about, and all else stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.agent.sandbox import argument_sets, profile
from common import syscalls

ALLOW, NOTIFY, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_NOTIFY", "SCMP_ACT_ERRNO"
ENGINE: dict[str, Any] = {
    "defaultAction": ERRNO,
    "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
    "syscalls": [
        {"names": ["mkdir", "read", "socket", "socketcall"], "action": ALLOW},
        *(
            {
                "names": ["personality"],
                "action": ALLOW,
                "args": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}],
            }
            for value in (0, 8)
        ),
        {
            "names": ["clone"],
            "action": ALLOW,
            "args": [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        },
        {"names": ["clone3"], "action": ERRNO, "errnoRet": 38},
    ],
}


def rule(*calls: str, **when: Any) -> dict[str, Any]:
    tests = [{"values": [], "bits": 0, "argument": 0} | test for test in when.get("when", [])]
    return {"calls": list(calls), "when": tests, "errno": "EPERM", "ends": False}


def action(filtered: dict[str, Any], call: str, *arguments: int) -> str:
    """Return what a filter does with a call, as libseccomp reads rules none of which meet."""
    given = (*arguments, *(0,) * (argument_sets.ARGUMENTS - len(arguments)))
    found = {
        entry["action"]
        for entry in filtered["syscalls"]
        if call in entry["names"] and all(_holds(given[test["index"]], test) for test in entry.get("args", []))
    }
    assert len(found) <= 1, f"{call} with {arguments} is told {found}"
    return found.pop() if found else str(filtered["defaultAction"])


def _holds(value: int, test: dict[str, Any]) -> bool:
    if test["op"] == "SCMP_CMP_EQ":
        return bool(value == test["value"])
    assert test["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(value & test["value"] == test["valueTwo"])


def test_a_call_that_is_denied_is_asked_about_and_others_stay() -> None:
    filtered = profile.confine(ENGINE, [rule("mkdir", "unshare")])
    assert [action(filtered, call) for call in ("mkdir", "unshare", "read", "mount")] == [NOTIFY, NOTIFY, ALLOW, ERRNO]
    assert filtered["architectures"] == ENGINE["architectures"]
    assert filtered["syscalls"][-1] == ENGINE["syscalls"][-1], "what the engine answers itself it answers as before"


def test_only_some_arguments_are_denied() -> None:
    filtered = profile.confine(ENGINE, [rule("socket", when=[{"argument": 0, "values": [16, 17]}])])
    upper = 1 << 32
    found = [action(filtered, "socket", value) for value in (1, 16, 17, 18, upper | 16, upper | 2)]
    assert found == [ALLOW, NOTIFY, NOTIFY, ALLOW, NOTIFY, ALLOW]


def test_what_the_engine_limits_itself_stays_limited() -> None:
    filtered = profile.confine(
        ENGINE,
        [
            rule("personality", when=[{"argument": 0, "bits": 8}]),
            rule("clone", when=[{"argument": 0, "bits": 0x100}]),
            rule("clone3", when=[{"argument": 1, "values": [64]}]),
        ],
    )
    assert [action(filtered, "personality", value) for value in (0, 8, 4)] == [ALLOW, NOTIFY, ERRNO]
    assert [action(filtered, "clone", value) for value in (0, 0x100, 0x10000000)] == [ALLOW, NOTIFY, ERRNO]
    assert [action(filtered, "clone3", 0, value) for value in (64, 88)] == [NOTIFY, ERRNO]
    kept = [entry for entry in filtered["syscalls"] if entry["names"] == ["clone3"] and entry["action"] == ERRNO]
    assert {entry["errnoRet"] for entry in kept} == {38}


def test_tests_of_one_rule_hold_together_and_rules_one_by_one() -> None:
    both = [{"argument": 0, "values": [2]}, {"argument": 1, "bits": 3}]
    filtered = profile.confine(ENGINE, [rule("socket", when=both), rule("socket", when=[{"argument": 2, "bits": 8}])])
    calls = [(2, 1, 0), (2, 2, 0), (2, 4, 0), (1, 1, 0), (1, 4, 9), (2, 3, 9)]
    assert [action(filtered, "socket", *call) for call in calls] == [NOTIFY, NOTIFY, ALLOW, ALLOW, NOTIFY, NOTIFY]


def test_what_32_bit_programs_could_call_instead_is_denied_as_a_whole_and_comes_first() -> None:
    filtered = profile.confine(ENGINE, [rule("socket", when=[{"argument": 0, "values": [17]}])])
    assert action(filtered, "socketcall", 3) == NOTIFY
    assert filtered["syscalls"][0] == {"names": ["socketcall"], "action": NOTIFY}


@pytest.mark.parametrize(
    ("denied", "instead"),
    [("chown", "chown32"), ("setgroups", "setgroups32"), ("lstat", "lstat64"), ("clock_settime", "clock_settime64")],
)
def test_a_call_that_32_bit_programs_have_twice_is_denied_twice_with_the_same_arguments(
    denied: str, instead: str
) -> None:
    engine = ENGINE | {"syscalls": [{"names": [denied, instead], "action": ALLOW}]}
    filtered = profile.confine(engine, [rule(denied)])
    assert [action(filtered, call) for call in (denied, instead)] == [NOTIFY, NOTIFY]
    filtered = profile.confine(engine, [rule(denied, when=[{"argument": 1, "values": [7]}])])
    for call in (denied, instead):
        assert [action(filtered, call, 0, value) for value in (7, 8)] == [NOTIFY, ALLOW]


@pytest.mark.parametrize(("denied", "instead"), [("truncate", "truncate64"), ("umount2", "umount")])
def test_one_whose_arguments_stand_elsewhere_is_denied_as_a_whole(denied: str, instead: str) -> None:
    engine = ENGINE | {"syscalls": [{"names": [denied, instead], "action": ALLOW}]}
    filtered = profile.confine(engine, [rule(denied, when=[{"argument": 1, "values": [7]}])])
    assert [action(filtered, denied, 0, 8), action(filtered, instead, 0, 8)] == [ALLOW, NOTIFY]


def test_all_that_stands_in_for_another_call_is_known() -> None:
    """A name that is misspelt would be passed over in silence."""
    names = {name for pair in (*profile.TWICE.items(), *profile.GATHERED.items()) for name in pair}
    assert not [name for name in names if not syscalls.is_known(name)]


def test_a_filter_that_allows_by_default_only_gains_what_is_denied() -> None:
    filtered = profile.confine({"defaultAction": ALLOW}, [rule("mkdir", when=[{"argument": 1, "values": [7]}])])
    assert [action(filtered, "mkdir", 0, mode) for mode in (7, 8)] == [NOTIFY, ALLOW]


def test_rules_that_would_make_the_filter_too_long_are_refused() -> None:
    many = [
        rule("socket", when=[{"argument": argument, "values": list(range(start, 4096, 256))}])
        for argument in range(3)
        for start in range(20)
    ]
    with pytest.raises(ValueError, match="the rules for socket are too many"):
        profile.confine(ENGINE, many)


@pytest.mark.parametrize(
    ("test", "passing", "failing"),
    [
        ({"argument": 0, "values": [5, 9], "bits": 0}, (5, 9, 1 << 32 | 5), (0, 4)),
        ({"argument": 0, "values": [], "bits": 6}, (2, 4, 7), (0, 1, 8)),
    ],
)
def test_a_test_passes_what_its_filter_asks_about(
    test: dict[str, Any], passing: tuple[int, ...], failing: tuple[int, ...]
) -> None:
    filtered = profile.confine(ENGINE, [{"calls": ["read"], "when": [test]}])
    for value in (*passing, *failing):
        assert profile.passes(test, [value]) is (value in passing)
        assert (action(filtered, "read", value) == NOTIFY) is (value in passing)
