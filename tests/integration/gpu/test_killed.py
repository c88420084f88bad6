"""A process may be killed anywhere: nobody waits for it, and what it held is free at once."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.cuda.build import SOURCES
from tests.fakes.cuda.clients import GIB, MIB, OUT_OF_MEMORY, Tenant

Make = Callable[..., Tenant]
LIMIT = GIB
STEP = 2 * MIB


@pytest.fixture(scope="session")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("stepper") / "stepper"
    command: list[str | Path] = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCES / "stepper.c"]
    subprocess.run(command, check=True)
    return program


def kill_after(stepper: Path, share: Tenant, steps: int, before: str, call: str) -> int:
    """Kill a client so many instructions into a call; returns how many ran, fewer where the call was over."""
    commands = "\n".join(["init", "primary 0 0", *before.split(";"), "stop", call, "stop", ""])
    # the tracer itself does without the shim
    environment = {name: value for name, value in share.environment.items() if name != "LD_PRELOAD"}
    preload = f"LD_PRELOAD={share.environment['LD_PRELOAD']}"
    command: list[str | Path] = [stepper, str(steps), "/usr/bin/env", preload, share.bench.client, "proc:0"]
    result = subprocess.run(
        command, input=commands, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return int(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("malloc 1 1000", f"malloc 0 {100 * MIB}"),
        (f"malloc 0 {100 * MIB}", "free 0"),
        (f"reserve 0 {STEP}", f"create 0 {STEP} 0"),
        (f"create 0 {STEP} 0;reserve 0 {STEP};map 0 0 {STEP};release 0", f"unmap 0 {STEP}"),
        ("pool 0 0", f"frompool 0 0 {100 * MIB}"),
        (f"pool 0 0;threshold 0 1000000000000;frompool 0 0 {100 * MIB};freeasync 0", "trim 0 0"),
        (f"graph 0;allocnode 0 0 {STEP};freenode 0 0;instantiate 0 0", "graphlaunch 0"),
    ],
    ids=["allocate", "free", "create", "unmap", "pool", "trim", "graph"],
)
def test_killed_at_any_instruction_of_a_call(tenant: Make, stepper: Path, before: str, call: str) -> None:
    share = tenant(LIMIT)
    length = kill_after(stepper, share, 1_000_000, before, call)
    assert length > 100
    # each part of the call is hit, at instructions that differ from run to run of the test
    chosen = sorted(random.sample(range(length), 10))
    for steps in chosen:
        kill_after(stepper, share, steps, before, call)
        begun = time.monotonic()
        with share.ready() as next_one:
            assert next_one.must("info").told == (LIMIT, LIMIT), f"killed after {steps} of {length} instructions"
            next_one.must(f"malloc 0 {LIMIT}")
            assert next_one.do("malloc 1 1").code == OUT_OF_MEMORY
            next_one.must("free 0")
            assert share.used() == share.machine.used() == 0
        assert time.monotonic() - begun < 30
    assert share.machine.peak() == LIMIT


def test_killed_while_others_work(tenant: Make) -> None:
    share = tenant(LIMIT)
    deadline = time.monotonic() + 8
    with share.ready() as lasting:
        lasting.must(f"malloc 0 {MIB}")
        lasting.send(f"churn 60000 7 {LIMIT // 8}")
        while time.monotonic() < deadline:
            with share.ready() as victim:
                victim.send(f"churn 1000000 {random.randrange(1 << 30)} {LIMIT // 8}")
                time.sleep(random.random() / 20)
        assert lasting.answer().code == 0
        assert share.machine.peak() <= LIMIT
        lasting.must("free 0")
        assert lasting.must("info").told == (LIMIT, LIMIT)
        assert share.used() == share.machine.used() == 0
