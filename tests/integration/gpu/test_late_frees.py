"""Memory that is freed in the order of a stream: it is charged until the stream gets there, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Client, Tenant

Make = Callable[..., Tenant]
LIMIT = 8 * MIB
LONG_MS = 400
BUSY = f"kernel 0 busy_{LONG_MS}ms", "stream 0", "launchon 0 0"


def free_late(client: Client, allocation: str = f"malloc 0 {LIMIT}") -> None:
    """Free memory on a stream that has work for a while."""
    client.must(allocation, *BUSY, "freeasyncon 0 0")


@pytest.mark.parametrize("way", ["proc:0", "proc:2", "dlsym"])
@pytest.mark.parametrize(
    "allocation",
    [f"malloc 0 {LIMIT}", f"managed 0 {LIMIT}", f"pitch 0 1024 {LIMIT // 1024}"],
    ids=["plain", "managed", "pitched"],
)
def test_memory_that_a_stream_frees_is_charged_until_it_gets_there(tenant: Make, way: str, allocation: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        free_late(client, allocation)
        assert share.used() == share.machine.used() == LIMIT
        assert client.do("malloc 1 1").code == OUT_OF_MEMORY
        client.must("sync")
        assert share.used() == share.machine.used() == 0
        client.must(f"malloc 1 {LIMIT}")


def test_a_stream_without_work_frees_at_once(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("stream 0", f"malloc 0 {LIMIT}", "freeasyncon 0 0")
        assert share.used() == share.machine.used() == 0


@pytest.mark.parametrize(
    "look",
    ["malloc 1 1", "async 1 1", "create 1 2097152 0", "array 1 1 1", "rungraph 1000 2", "info"],
    ids=["plain", "pool", "virtual", "array", "graph", "question"],
)
def test_whoever_wants_memory_gets_what_streams_have_freed_since(tenant: Make, look: str) -> None:
    share = tenant(34 * MIB, 34 * MIB, gpus=2)
    with share.ready() as client:
        client.must("primary 1 1", "primary 0 0")
        free_late(client, f"malloc 0 {34 * MIB}")
        time.sleep(1.5 * LONG_MS / 1000)
        client.must(look)
        assert share.used() == share.machine.used() < 34 * MIB


def test_waiting_for_another_stream_gives_nothing_back(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        free_late(client)
        client.must("stream 1", "syncstream 1")
        assert share.used() == share.machine.used() == LIMIT


@pytest.mark.parametrize("owner", [0, 1], ids=["the context of the stream", "another context"])
@pytest.mark.parametrize("gone", [0, 1], ids=["of the memory", "of the stream"])
def test_memory_goes_with_either_context_that_ends(tenant: Make, owner: int, gone: int) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        contexts = ["context 2 0", "context 3 0"]
        client.must(*contexts, f"current {2 + owner}", f"malloc 0 {LIMIT}", "current 2", *BUSY, "current 0")
        client.must("freeasyncon 0 0", f"contextfree {2 if gone else 2 + owner}")
        assert share.used() == share.machine.used() == 0
        client.must(f"malloc 1 {LIMIT}")


def test_a_context_is_left_while_a_stream_of_it_is_to_free(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        free_late(client)
        client.must("unprimary 0")
        assert share.used() == share.machine.used() == 0


def test_nothing_is_asked_of_such_a_stream_while_the_program_records(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("stream 1", "capture 1", f"malloc 0 {LIMIT // 2}", "stream 0", "freeasyncon 0 0", "info")
        client.must("endcapture 1 0", "info")
        assert share.used() == share.machine.used() == 0


def test_memory_is_charged_on_where_the_driver_refuses_to_free_it(tenant: Make) -> None:
    share = tenant(LIMIT, settings={"FAKE_GPU_FAULT": "cuMemFreeAsync:1:999"})
    with share.ready() as client:
        client.must(f"malloc 0 {LIMIT}")
        assert client.do("freeasync 0").code == 999
        assert share.used() == share.machine.used() == LIMIT
        client.must("freeasync 0")
        assert share.used() == share.machine.used() == 0


@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventRecord"])
def test_where_there_are_no_events_the_stream_is_waited_for(tenant: Make, call: str) -> None:
    share = tenant(LIMIT, settings={"FAKE_GPU_FAULT": f"{call}:0:2"})
    with share.ready() as client:
        free_late(client)
        assert share.used() == share.machine.used() == 0


def test_blocks_on_one_page_give_it_back_when_the_last_stream_got_there(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("malloc 0 1000", "malloc 1 1000", *BUSY, "freeasyncon 0 0", "free 1")
        assert share.used() == share.machine.used() == 2 * MIB
        client.must("sync")
        assert share.used() == share.machine.used() == 0


POOL = "pool 0 0", "threshold 0 1000000000000"
STEP = 32 * MIB


@pytest.mark.parametrize("stream", [0, None], ids=["a stream", "the default stream"])
def test_a_pool_that_goes_behind_its_frees_is_charged_no_longer(tenant: Make, stream: int | None) -> None:
    """Nobody waits: of a stream that is idle there is nothing to wait for."""
    share = tenant(STEP)
    with share.ready() as client:
        client.must(*POOL, "stream 0", f"frompool 0 0 {STEP}")
        client.must("freeasync 0" if stream is None else f"freeasyncon 0 {stream}", "poolfree 0")
        assert share.used() == share.machine.used() == 0
        client.must(f"malloc 1 {STEP}")


@pytest.mark.parametrize(
    "want", [f"malloc 1 {STEP}", f"create 1 {STEP} 0", "pool 1 0\nfrompool 1 1 1", "rungraph 1000 1"]
)
def test_what_an_idle_stream_has_freed_of_a_pool_makes_room_before_anybody_waits(tenant: Make, want: str) -> None:
    share = tenant(STEP)
    with share.ready() as client:
        client.must(*POOL, "stream 0", f"frompool 0 0 {STEP}", "freeasyncon 0 0", *want.split("\n"))
        assert share.used() == share.machine.used() <= STEP
    assert share.machine.peak() == STEP


def test_a_pool_that_goes_before_its_frees_is_charged_until_somebody_has_waited(tenant: Make) -> None:
    share = tenant(STEP)
    with share.ready() as client:
        client.must(*POOL, f"frompool 0 0 {STEP}", *BUSY, "freeasyncon 0 0")
        began = time.monotonic()
        client.must("poolfree 0")
        assert client.do("malloc 1 1").code == OUT_OF_MEMORY
        assert time.monotonic() - began < 0.8 * LONG_MS / 1000, "somebody has waited for the stream"
        assert share.used() == share.machine.used() == STEP
        client.must("sync", f"malloc 1 {STEP}")


def test_a_stream_that_has_gone_is_not_asked(tenant: Make) -> None:
    share = tenant(STEP)
    with share.ready() as client:
        client.must(*POOL, "stream 0", f"frompool 0 0 {STEP}", "freeasyncon 0 0", "streamfree 0", f"malloc 1 {STEP}")
        assert share.used() == share.machine.used() == STEP
