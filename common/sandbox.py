"""Sandboxes: rules on the system calls of a session's containers, on top of the container engine's own."""

from __future__ import annotations

import errno
import math
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from common.hints import hinted
from common.sentence import Sentence, Several
from common.strict import StrictModel

_NEEDED = (
    "arch_prctl brk clone close execve exit exit_group fcntl fstat futex getpid mmap mprotect munmap newfstatat openat"
    " prctl pread64 read rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait set_robust_list set_tid_address"
    " wait4 write"
)
NEEDED_CALLS = frozenset(_NEEDED.split())
"""System calls that no sandbox may deny: without them a container cannot start, or its listener cannot be told."""

TESTABLE_CALLS = frozenset({"clone"})
"""Those of them that may be denied with some arguments: a container starts without namespaces of its programs."""

MAX_RULES = 64
MAX_COMBINATIONS = 64
"""What the tests of one rule leave to choose from, taken together."""


Call = Annotated[
    str,
    Field(pattern=r"^[a-z_][a-z0-9_]{1,39}$"),
    hinted(Sentence("write one such as {example}", example="ptrace"), Sentence("is no system call")),
]


class ArgumentTest(StrictModel):
    """A test of one argument of a system call: it is one of `values`, or has any of `bits`; exactly one of both is set.

    Only the lower 32 bits of the argument count: the kernel reads no more of most of them, and programs of 32 bits have
    no more.
    """

    argument: int = Field(ge=0, le=5)
    values: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field(default_factory=list, max_length=16)
    bits: int = Field(default=0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _one(self) -> ArgumentTest:
        if bool(self.values) == bool(self.bits):
            raise ValueError(Sentence("write one of `values` and `bits`"))
        return self


class SandboxRule(StrictModel):
    """System calls that a sandbox denies, with all arguments or only with those that pass every test of `when`.

    The call ends with the error `errno`, or, where the rule `ends` it, the process is killed.
    """

    calls: list[Call] = Field(min_length=1, max_length=64)
    when: list[ArgumentTest] = Field(default_factory=list, max_length=6)
    errno: str = Field(default="EPERM", max_length=32)
    ends: bool = False

    @field_validator("when")
    @classmethod
    def _each_once(cls, value: list[ArgumentTest]) -> list[ArgumentTest]:
        if len({test.argument for test in value}) < len(value):
            raise ValueError(Sentence("an argument is tested twice; write several values, or several rules"))
        return value

    @field_validator("when")
    @classmethod
    def _few(cls, value: list[ArgumentTest]) -> list[ArgumentTest]:
        if math.prod(len(test.values) or test.bits.bit_count() for test in value) > MAX_COMBINATIONS:
            raise ValueError(
                Sentence(
                    "the tests have more than {most} combinations; write fewer values or bits", most=MAX_COMBINATIONS
                )
            )
        return value

    @model_validator(mode="after")
    def _can_do_without(self) -> SandboxRule:
        needed = NEEDED_CALLS - TESTABLE_CALLS if self.when else NEEDED_CALLS
        if found := sorted(needed.intersection(self.calls)):
            raise ValueError(
                Sentence("no container starts without {names}; leave what it needs out", names=Several(found))
            )
        return self

    @field_validator("errno")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in errno.errorcode.values():
            raise ValueError(
                Sentence("{name} is no error of the system; write one such as EPERM or ENOSYS", name=value)
            )
        return value


class Sandbox(StrictModel):
    """What a container's programs must not ask of the kernel, on top of the container engine's own rules.

    Of several rules for one call the first that fits says what happens.
    """

    name: str = Field(min_length=1, max_length=63)
    rules: list[SandboxRule] = Field(default_factory=list, max_length=MAX_RULES)
