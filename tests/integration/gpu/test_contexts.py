"""Several contexts of a program: what runs in one of them is not over because another one is done, or gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from appliance.gpu.timetable import Sharer, plan
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import GIB, MIB, Client, Tenant, gpu_uuid

Make = Callable[..., Tenant]
PERIOD_NS = 100_000_000
MILLISECOND = 1_000_000
LONG_MS = 400


def timed(tenant: Make, gpus: int = 1) -> Tenant:
    """A tenant whose launches are gated, with half of the time of each GPU."""
    share = tenant(*[0] * gpus, gpus=gpus, compute=Compute.STRICT)
    now = time.monotonic_ns()
    windows = plan([Sharer("it", 500), Sharer("other", 500)], Compute.STRICT, PERIOD_NS, now)
    share.file.schedule({gpu_uuid(gpu): windows["it"] for gpu in range(gpus)}, now)
    return share


def took_ms(client: Client, command: str) -> float:
    begun = time.monotonic()
    client.must(command)
    return (time.monotonic() - begun) * 1000


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (["context 1 0"], ["sync"]),
        (["context 1 0"], ["syncof 1"]),
        (["context 1 0", "current 0"], ["syncof 1"]),
        (["context 1 0"], []),
        ([], ["context 1 0", "contextfree 1", "current 0"]),
        ([], ["primary 1 0", "unprimary 0", "current 0"]),
    ],
    ids=[
        "another is waited for",
        "another is waited for by its name",
        "another is waited for by its name from here",
        "another is launched in",
        "another is destroyed",
        "the same is kept and left once more",
    ],
)
def test_work_of_a_context_is_not_over_because_of_another(
    tenant: Make, before: list[str], meanwhile: list[str]
) -> None:
    share = timed(tenant)
    with share.ready() as client:
        client.must(f"kernel 0 busy_{LONG_MS}ms", "kernel 1 busy_1ms", "launch 1 0", "sync", *before)
        client.must("current 0", "launch 0 0")
        begun = time.monotonic()
        if before:
            client.must("current 1")
        client.must(*meanwhile, "launch 1 0")
        assert (time.monotonic() - begun) * 1000 >= LONG_MS - 50, "a launch went beside the work of another context"
        assert share.total().busy_ns >= (LONG_MS - 20) * MILLISECOND


def test_the_default_stream_has_two_names(tenant: Make) -> None:
    share = timed(tenant)
    with share.ready() as client:
        client.must("kernel 0 busy_1500ms", "kernel 1 busy_1ms", "launch 1 0", "sync", "launch 0 0")
        # behind work on its own stream a launch is held as long as that takes, and not for a second
        assert took_ms(client, "launch 1 5") >= 1400


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_thread_that_feeds_several_gpus_is_not_held_for_long_behind_what_may_wait_for_it(
    tenant: Make, gpus: int
) -> None:
    share = timed(tenant, gpus=gpus)
    with share.ready() as client:
        client.must("kernel 0 busy_3000ms", "kernel 1 busy_1ms", "launch 1 0", "sync")
        if gpus == 2:
            client.must("primary 1 1", "launch 1 0", "sync", "current 0")
        client.must("launch 0 0")
        held_ms = took_ms(client, "launch 1 0")
        # the first of these is work that the thread itself may be about to answer on the other GPU
        assert (held_ms < 2000) is (gpus == 2), held_ms
        assert held_ms >= 900


def test_a_context_that_was_attached_to_keeps_its_memory_until_its_last_detachment(tenant: Make) -> None:
    share = tenant(GIB)
    with share.ready() as client:
        client.must("context 1 0", "attach 2", f"malloc 0 {64 * MIB}", "detach 2")
        assert share.used() == share.machine.used() == 64 * MIB
        client.must("detach 1")
        assert share.used() == share.machine.used() == 0
        client.must("context 1 0", "attach 2", f"malloc 0 {64 * MIB}", "contextfree 1")
        assert share.used() == share.machine.used() == 0
