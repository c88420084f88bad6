"""Random programs: after every call the account is what the driver holds, and a killed one leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Client, Tenant
from tests.fakes.cuda.programs import Program

Make = Callable[..., Tenant]
LIMITS = (112 * MIB, 144 * MIB)
STEPS = 400


def compare(share: Tenant, program: Program, last: list[str]) -> None:
    for gpu, limit in enumerate(LIMITS):
        charged, held = share.used(gpu), share.machine.used(gpu)
        assert held <= charged <= limit, f"GPU {gpu} after {last}: {held} bytes are held, {charged} are charged"
        if not program.has_loose_charges:
            assert held == charged, f"GPU {gpu} after {last}"


def run(share: Tenant, client: Client, program: Program, steps: int) -> int:
    """Let a client run so many steps; returns how many the limit refused."""
    refused = 0
    client.must(*program.begin())
    for _ in range(steps):
        commands = program.step()
        client.must(*commands[:-1])
        code = client.do(commands[-1]).code
        assert code in {0, OUT_OF_MEMORY}, (commands, code)
        program.done(code == OUT_OF_MEMORY)
        refused += code != 0
        compare(share, program, commands)
    return refused


@pytest.mark.parametrize("seed", range(6))
def test_the_account_is_what_the_driver_holds_after_every_call(tenant: Make, seed: int) -> None:
    share = tenant(*LIMITS, gpus=2, settings={"FAKE_GPU_CONTEXT_MIB": "10"} if seed % 2 else {})
    program = Program(seed, 24 * MIB)
    with share.client() as client:
        refused = run(share, client, program, STEPS)
    assert refused > 0, "the limit was never reached"
    # the block has killed it wherever it was
    with share.client() as after:
        after.must("init", "primary 1 1", "primary 0 0", "info")
        for gpu in range(2):
            assert share.used(gpu) == share.machine.used(gpu)
            assert share.machine.peak(gpu) <= LIMITS[gpu]
