"""The container engine's own system call filter, narrowed by a sandbox. Pure; plain data, so that it loads fast.

The rules are in JSON's form of `protocol.Sandbox`, the filter in that of the OCI runtime specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from appliance.agent.sandbox import argument_sets
from appliance.agent.sandbox.argument_sets import ALL, ARGUMENTS, HALF, MOST, ArgumentSet

NOTIFY = "SCMP_ACT_NOTIFY"
_SOCKET_CALLS = (
    "socket bind connect listen accept accept4 getsockname getpeername socketpair send sendto recv recvfrom shutdown"
    " setsockopt getsockopt sendmsg recvmsg sendmmsg recvmmsg"
)
_IPC_CALLS = "semop semget semctl semtimedop msgsnd msgrcv msgget msgctl shmat shmdt shmget shmctl"
_IDS = (
    "chown fchown lchown getuid getgid geteuid getegid setuid setgid setreuid setregid getresuid setresuid getresgid"
    " setresgid getgroups setgroups setfsuid setfsgid"
)
_TIMES = "clock_adjtime clock_gettime clock_settime timer_gettime timer_settime timerfd_gettime timerfd_settime"
_LATER_TIMES = (
    "clock_getres clock_nanosleep io_pgetevents mq_timedreceive mq_timedsend ppoll pselect6 recvmmsg"
    " sched_rr_get_interval semtimedop utimensat"
)
TWICE = {
    **{call: f"{call}32" for call in _IDS.split()},
    **{call: f"{call}64" for call in ("stat lstat sendfile " + _TIMES).split()},
    **{call: f"{call}_time64" for call in _LATER_TIMES.split()},
    "select": "_newselect",
}
"""Calls that programs of 32 bits have a second time, with the same arguments: for ids, files and times that need more
bits than they once had.
"""
_MULTIPLEXED = ("socketcall", "ipc")
GATHERED = {
    **dict.fromkeys(_SOCKET_CALLS.split(), "socketcall"),
    **dict.fromkeys(_IPC_CALLS.split(), "ipc"),
    **{call: f"{call}64" for call in ("statfs", "fstatfs", "truncate", "ftruncate")},
    "fadvise64": "fadvise64_64",
    "lseek": "_llseek",
    "umount2": "umount",
}
"""Calls that programs of 32 bits may also make through another one, whose arguments no filter can see or which has them
elsewhere.
"""


def denied(rules: Iterable[Mapping[str, Any]]) -> dict[str, list[ArgumentSet]]:
    """Return with which arguments rules deny each system call, and what 32-bit programs could call instead.

    What has other calls of its own behind one number is denied as a whole: the library makes rules for it from those
    for the others, which would have their way between ours.
    """
    found: dict[str, list[ArgumentSet]] = {}
    for rule in rules:
        for call in with_second(rule["calls"]):
            found.setdefault(call, []).extend([ALL] if call in _MULTIPLEXED else sets_of(rule["when"]))
        found |= {GATHERED[call]: [ALL] for call in rule["calls"] if call in GATHERED}
    return found


def with_second(calls: Iterable[str]) -> list[str]:
    """Return calls, each with the one that 32-bit programs have beside it."""
    return [name for call in calls for name in (call, TWICE.get(call)) if name]


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
    return argument & HALF in test["values"]


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
    return [argument_sets.having(argument, HALF, value) for value in test["values"]]


def _bits(number: int) -> list[int]:
    return [1 << position for position in range(number.bit_length()) if number >> position & 1]
