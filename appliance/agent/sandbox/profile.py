"""The container engine's own system call filter, narrowed by a sandbox. Pure; plain data, so that it loads fast.

The rules are in JSON's form of `protocol.Sandbox`, the filter in that of the OCI runtime specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from appliance.agent.sandbox import argument_sets
from appliance.agent.sandbox.argument_sets import ALL, ARGUMENTS, FULL, MOST, ArgumentSet

NOTIFY = "SCMP_ACT_NOTIFY"
_HALF = (1 << 32) - 1
_SOCKET_CALLS = (
    "socket bind connect listen accept accept4 getsockname getpeername socketpair send sendto recv recvfrom shutdown"
    " setsockopt getsockopt sendmsg recvmsg sendmmsg recvmmsg"
)
_IPC_CALLS = "semop semget semctl semtimedop msgsnd msgrcv msgget msgctl shmat shmdt shmget shmctl"
GATHERED = {
    **dict.fromkeys(_SOCKET_CALLS.split(), "socketcall"),
    **dict.fromkeys(_IPC_CALLS.split(), "ipc"),
}
"""Calls that programs of 32 bits may also make through another one, whose arguments no filter can see."""


def denied(rules: Iterable[Mapping[str, Any]]) -> dict[str, list[ArgumentSet]]:
    """Return with which arguments rules deny each system call.

    What 32-bit programs could do instead is denied as a whole.
    """
    found: dict[str, list[ArgumentSet]] = {}
    for rule in rules:
        for call in rule["calls"]:
            found.setdefault(call, []).extend(sets_of(rule["when"]))
            if call in GATHERED:
                found[GATHERED[call]] = [ALL]
    return found


def sets_of(tests: Sequence[Mapping[str, Any]]) -> list[ArgumentSet]:
    """Return the arguments that pass all tests of a rule."""
    found = [ALL]
    for test in tests:
        met = (argument_sets.both(left, right) for left, right in product(found, _passing(test)))
        found = [one for one in met if one is not None]
    return found


def confine(seccomp: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a filter that denies what the rules say, by asking a listener, and is otherwise as `seccomp`.

    Raises ValueError for rules that would make it too long.
    """
    calls = {name: _disjoint(name, taken) for name, taken in denied(rules).items()}
    kept: list[dict[str, Any]] = []
    narrowed: list[dict[str, Any]] = []
    for rule in seccomp.get("syscalls", []):
        names = [name for name in rule["names"] if name not in calls]
        if names:
            kept.append({**rule, "names": names})
        for name in rule["names"]:
            if name in calls:
                narrowed += _narrowed(name, rule, calls[name])
    asked = [_rule(name, {"action": NOTIFY}, one) for name, taken in calls.items() for one in taken]
    # the library makes rules for what gathers calls from those for the calls, unless it has a wider rule before
    asked.sort(key=lambda rule: rule["names"][0] not in GATHERED.values())
    if len(asked) + len(narrowed) > MOST:
        raise ValueError(f"the rules make more than {MOST} comparisons of arguments; write fewer, or wider ones")
    return {**seccomp, "syscalls": asked + narrowed + kept}


def passes(test: Mapping[str, Any], arguments: Sequence[int]) -> bool:
    """Return whether the arguments of a call pass a test of a rule."""
    argument = arguments[test["argument"]]
    if test["bits"]:
        return bool(argument & test["bits"])
    return any((argument & _HALF if value <= _HALF else argument) == value for value in test["values"])


def _disjoint(name: str, taken: Sequence[ArgumentSet]) -> list[ArgumentSet]:
    try:
        return argument_sets.disjoint(taken)
    except ValueError as error:
        raise ValueError(f"the rules for {name} are too many: {error}") from error


def _narrowed(name: str, rule: Mapping[str, Any], taken: Sequence[ArgumentSet]) -> list[dict[str, Any]]:
    """Return what is left of a rule for one call where a part of its arguments is denied by another rule."""
    try:
        left = argument_sets.left_of(argument_sets.disjoint(_arguments(rule.get("args") or [])), taken)
    except ValueError as error:
        raise ValueError(f"the rules for {name} are too many: {error}") from error
    return [_rule(name, rule, one) for one in left]


def _arguments(comparisons: Sequence[Mapping[str, Any]]) -> list[ArgumentSet]:
    parts = [
        argument_sets.comparing(item["index"], item["op"], item["value"], item.get("valueTwo", 0))
        for item in comparisons
    ]
    if len({item["index"] for item in comparisons}) < len(comparisons):
        # the runtime reads several comparisons of one argument as rules of their own
        return [one for part in parts for one in part]
    found = [ALL]
    for part in parts:
        met = (argument_sets.both(left, right) for left, right in product(found, part))
        found = [one for one in met if one is not None]
    return found


def _rule(name: str, like: Mapping[str, Any], one: ArgumentSet) -> dict[str, Any]:
    rule = {key: value for key, value in like.items() if key not in ("names", "args")}
    comparisons = [
        {"index": argument, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
        for argument, (mask, value) in enumerate(one)
        if mask
    ]
    return {"names": [name], **rule, **({"args": comparisons} if comparisons else {})}


def _passing(test: Mapping[str, Any]) -> list[ArgumentSet]:
    argument = test["argument"]
    if not 0 <= argument < ARGUMENTS:
        raise ValueError(f"a system call has no argument {argument}")
    if test["bits"]:
        return [argument_sets.having(argument, bit, bit) for bit in _bits(test["bits"])]
    # the kernel reads most arguments as 32 bits: whatever stands in the upper half would else slip past the rule
    return [argument_sets.having(argument, _HALF if value <= _HALF else FULL, value) for value in test["values"]]


def _bits(number: int) -> list[int]:
    return [1 << position for position in range(number.bit_length()) if number >> position & 1]
