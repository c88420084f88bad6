"""What the kernel does in a sandbox: real filters, made of engines' rules of several versions, on each architecture.

A sandbox is never wider than the engine's own filter, and what it denies is denied to programs of 32 bits too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appliance.agent.sandbox import profile
from common.sandbox import NEEDED_CALLS, ArgumentTest, SandboxRule
from tests import seccomp
from tests.manual import documented
from tests.seccomp import ALLOW, ARM, ARM64, NOTIFY, X32, X86, X86_64

VSOCK, ALG, PACKET, INET = 40, 38, 17, 2
LONGEST = 4096
"""Steps that the kernel takes of one filter."""


def allowed(*names: str, **test: int | str) -> dict[str, Any]:
    given = [{"index": 0, **test}] if test else []
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": given}


PLAIN = (
    allowed("mkdir", "mkdirat", "read", "bind", "connect", "socketpair", "chown", "chown32", "lchown", "ipc", "shmget"),
    *(allowed("personality", value=value, op="SCMP_CMP_EQ") for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)),
    allowed("clone", value=0x7E020000, valueTwo=0, op="SCMP_CMP_MASKED_EQ"),
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    allowed("ptrace", "process_vm_readv", "process_vm_writev", "io_uring_setup"),
)
ENGINES: dict[str, list[dict[str, Any]]] = {
    "20.10": [allowed("socket", "socketcall"), *PLAIN],
    "26": [allowed("socketcall"), allowed("socket", value=VSOCK, op="SCMP_CMP_NE"), *PLAIN],
    "29": [
        {"names": ["socketcall"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        allowed("socket", value=ALG, op="SCMP_CMP_LT"),
        allowed("socket", value=ALG + 1, op="SCMP_CMP_EQ"),
        allowed("socket", value=VSOCK, op="SCMP_CMP_GT"),
        *PLAIN,
    ],
}
"""What engines of these versions say by default of the calls that are looked at here."""
MACHINES = {
    "amd64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "arm64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
}
NARROW = {"amd64": X86, "arm64": ARM}
WIDE = {"amd64": X86_64, "arm64": ARM64}
CALLS = (
    *("socket", "socketcall", "bind", "mkdir", "read", "personality", "clone", "clone3", "chown", "chown32"),
    *("lchown32", "ipc", "shmget", "ptrace", "unshare", "process_vm_readv"),
)

engines, machines = st.sampled_from(sorted(ENGINES)), st.sampled_from(sorted(MACHINES))
numbers = st.one_of(
    st.sampled_from([0, 1, 2, 8, INET, 16, PACKET, 37, ALG, 39, VSOCK, 41, 0x20000, 0x10000000, 0x7E020000]),
    st.integers(0, 2**32 - 1),
)
# by the upper half programs of 64 bits could try to slip past
upper = st.integers(0, 2**32 - 1)
arguments = st.tuples(*[st.one_of(numbers, st.builds(lambda low, high: high << 32 | low, numbers, upper))] * 6)
tests = st.one_of(
    st.builds(ArgumentTest, argument=st.integers(0, 2), values=st.lists(numbers, min_size=1, max_size=3)),
    st.builds(ArgumentTest, argument=st.integers(0, 2), bits=st.sampled_from([1, 8, 0x10000000, 3 << 20, 1 << 31])),
)
rules = st.builds(
    SandboxRule,
    calls=st.lists(st.sampled_from([call for call in CALLS if call not in NEEDED_CALLS]), min_size=1, max_size=3),
    when=st.lists(tests, max_size=2, unique_by=lambda test: test.argument),
)


def engine_filter(version: str, machine: str) -> dict[str, Any]:
    return {"defaultAction": "SCMP_ACT_ERRNO", "architectures": MACHINES[machine], "syscalls": ENGINES[version]}


def confined(version: str, machine: str, *given: SandboxRule) -> seccomp.Filter:
    return seccomp.made(profile.confine(engine_filter(version, machine), [rule.model_dump() for rule in given]))


def decide(found: seccomp.Filter, architecture: int, call: str, *given: int) -> int | None:
    number = seccomp.number_of(architecture, call)
    padded = (*given, *(0,) * (6 - len(given)))
    return None if number is None else found.decide(X86_64 if architecture == X32 else architecture, number, padded)


@given(engines, machines, st.lists(rules, min_size=1, max_size=3), st.lists(arguments, min_size=1, max_size=4))
def test_a_sandbox_is_never_wider_than_the_engines_filter(
    version: str, machine: str, given: list[SandboxRule], tried: list[tuple[int, ...]]
) -> None:
    try:
        inside = confined(version, machine, *given)
    except ValueError as error:
        # a rule that would be too long is refused, and no container starts
        assume("comparisons" not in str(error))
        raise
    outside = seccomp.made(engine_filter(version, machine))
    # edges of what the rules and the engine compare with
    known = [(value, 0, 0, 0, 0, 0) for value in (0, 2, 16, ALG, VSOCK, 0x20000, 1 << 32 | VSOCK, 1 << 63 | VSOCK)]
    for name in MACHINES[machine]:
        architecture = seccomp.TOKENS[name]
        mask = 2**64 - 1 if architecture in (X86_64, ARM64, X32) else 2**32 - 1
        for call in CALLS:
            for each in (*known, *tried):
                seen = [argument & mask for argument in each]
                found = decide(inside, architecture, call, *seen)
                if found == ALLOW:
                    assert decide(outside, architecture, call, *seen) == ALLOW, (name, call, seen)


@pytest.mark.parametrize("version", ENGINES)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_engine_denies_to_programs_of_32_bits_stays_denied(version: str, machine: str) -> None:
    rule = SandboxRule.model_validate({"calls": ["socket"], "when": [{"argument": 0, "values": [16, 17]}]})
    inside, outside = confined(version, machine, rule), seccomp.made(engine_filter(version, machine))
    for family in (INET, ALG, 39, VSOCK, 41):
        for architecture in (NARROW[machine], WIDE[machine]):
            expected = decide(outside, architecture, "socket", family, 1)
            assert decide(inside, architecture, "socket", family, 1) == expected, (family, hex(architecture))
    assert decide(inside, NARROW[machine], "socket", PACKET, 3) == NOTIFY
    assert decide(inside, WIDE[machine], "socket", 1 << 32 | PACKET, 3) == NOTIFY
    assert decide(inside, NARROW[machine], "socketcall", 1) in (NOTIFY, None)


@given(engines, machines, st.lists(rules, min_size=1, max_size=3), arguments)
def test_what_a_sandbox_denies_is_denied_on_each_architecture(
    version: str, machine: str, given: list[SandboxRule], tried: tuple[int, ...]
) -> None:
    try:
        inside = confined(version, machine, *given)
    except ValueError as error:
        assume("comparisons" not in str(error))
        raise
    for rule in given:
        seen = list(tried)
        for test in rule.when:
            seen[test.argument] = test.values[0] if test.values else test.bits & -test.bits
        for architecture in (WIDE[machine], NARROW[machine]):
            narrow = architecture == NARROW[machine]
            if narrow and any(argument >> 32 for argument in seen):
                continue
            for call in rule.calls:
                assert decide(inside, architecture, call, *seen) != ALLOW, (call, seen)


@pytest.mark.parametrize("version", ENGINES)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_example_of_the_manual_can_be_held(version: str, machine: str) -> None:
    examples = documented()
    assert len(examples) >= 3
    for line, held in examples:
        inside = confined(version, machine, *held)
        assert len(inside.program) < LONGEST, line
        for rule in held:
            values = {test.argument: test.values[0] if test.values else test.bits & -test.bits for test in rule.when}
            for call in rule.calls:
                tried = [values.get(argument, 0) for argument in range(6)]
                assert decide(inside, WIDE[machine], call, *tried) == NOTIFY, (line, call)
