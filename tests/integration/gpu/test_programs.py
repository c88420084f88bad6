"""Random programs: after every call the account is what the driver holds, and a killed one leaves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random

import pytest

from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Client, Tenant
from tests.gpu.random_programs import Program

Make = Callable[..., Tenant]
LIMITS = (112 * MIB, 144 * MIB)
STEPS = 400
AHEAD = 10
"""Steps that a program is given at once before it is killed."""


def compare(share: Tenant, programs: Sequence[Program], last: list[str]) -> None:
    for gpu, limit in enumerate(LIMITS):
        charged, held = share.used(gpu), share.machine.used(gpu)
        assert held <= charged <= limit, f"GPU {gpu} after {last}: {held} bytes are held, {charged} are charged"
        if not any(program.has_loose_charges for program in programs):
            assert held == charged, f"GPU {gpu} after {last}"


def run(share: Tenant, clients: Sequence[Client], programs: Sequence[Program], steps: int, chance: Random) -> int:
    """Let clients run so many steps between them, in any order; returns how many the limit refused."""
    refused = 0
    for client, program in zip(clients, programs, strict=True):
        client.must(*program.begin())
    for _ in range(steps):
        number = chance.randrange(len(clients))
        commands = programs[number].step()
        clients[number].must(*commands[:-1])
        code = clients[number].do(commands[-1]).code
        assert code in {0, OUT_OF_MEMORY}, (commands, code)
        programs[number].done(code == OUT_OF_MEMORY)
        refused += code != 0
        compare(share, programs, commands)
    return refused


@pytest.mark.parametrize("seed", range(8))
def test_the_account_is_what_the_driver_holds_after_every_call(tenant: Make, seed: int) -> None:
    share = tenant(*LIMITS, gpus=2, settings={"FAKE_GPU_CONTEXT_MIB": "10"} if seed % 2 else {})
    chance, programs = Random(seed), [Program(seed + 100 * number, 24 * MIB) for number in range(1 + seed % 2)]
    with ExitStack() as stack:
        clients = [stack.enter_context(share.client()) for _ in programs]
        assert run(share, clients, programs, STEPS, chance) > 0, "the limit was never reached"
        # whoever it is, it is killed in the middle of what it does
        clients[0].send("\n".join(command for _ in range(AHEAD) for command in programs[0].step()))
        time.sleep(chance.random() / 100)
    with share.client() as after:
        after.must("init", "primary 1 1", "primary 0 0", "info")
        for gpu in range(2):
            assert share.used(gpu) == share.machine.used(gpu)
            assert share.machine.peak(gpu) <= LIMITS[gpu]
