"""Memory of graphs, recorded ones too: what is charged for it, and where it stops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Tenant

Make = Callable[..., Tenant]

LIMIT = 64 * MIB

STEP = 2 * MIB

CHUNK = 32 * MIB
"""What pools and graphs take at a time."""


@pytest.mark.parametrize("node", ["allocnode", "anynode"])
@pytest.mark.parametrize("way", ["linked", "proc:0", "proc:2"])
def test_memory_of_graphs_is_charged_and_trimmed(tenant: Make, node: str, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        client.must("graph 0", f"{node} 0 0 {LIMIT}", "freenode 0 0", "instantiate 0 0", "graphlaunch 0", "sync")
        assert share.machine.used() == LIMIT
        client.must("execfree 0", "graphfree 0", "graphtrim 0")
        assert share.machine.used() == 0
        client.must(f"malloc 1 {LIMIT}")
        assert share.used() == share.machine.used() == LIMIT


@pytest.mark.parametrize("node", ["allocnode", "anynode"])
def test_memory_of_graphs_stops_at_the_limit(tenant: Make, node: str) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("malloc 0 1")
        codes = [
            client.do(step).code
            for step in ("graph 0", f"{node} 0 1 {LIMIT}", "freenode 0 1", "instantiate 0 0", "graphlaunch 0")
        ]
        assert OUT_OF_MEMORY in codes
        assert share.machine.peak() <= LIMIT


FREES_ON_LAUNCH = 1


def test_a_graph_larger_than_half_the_limit_runs_again(tenant: Make) -> None:
    share = tenant(4 * CHUNK)
    with share.ready() as client:
        # its memory is still in use when it is launched again
        client.must("graph 0", f"allocnode 0 0 {3 * CHUNK}", f"instantiate 0 0 {FREES_ON_LAUNCH}")
        client.must("graphlaunch 0", "graphlaunch 0")
        assert share.used() == share.machine.used() == 3 * CHUNK


def test_a_graph_whose_memory_was_trimmed_needs_room_again(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("graph 0", f"allocnode 0 0 {LIMIT}", "freenode 0 0", "instantiate 0 0")
        client.must("graphlaunch 0", "graphfree 0", "graphtrim 0", f"malloc 1 {LIMIT // 2}")
        assert client.do("graphlaunch 0").code == OUT_OF_MEMORY
        client.must("free 1", "graphlaunch 0")
        assert share.machine.peak() <= LIMIT


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("way", ["linked", "proc:0", "proc:2"])
def test_a_capture_stays_valid_through_all_that_is_recorded(tenant: Make, gpus: int, way: str) -> None:
    share = tenant(*[2 * LIMIT] * gpus, gpus=gpus)
    with share.ready(way) as client:
        client.must("stream 0", "pool 0 0", "kernel 0 busy_300us", f"malloc 4 {STEP}", "capture 0")
        client.must("asyncon 1 1000 0", "launchon 0 0", "freeasyncon 1 0", "asyncon 2 1000 0", "freeasyncon 2 0")
        client.must("endcapture 0 0", "instantiate 0 0", "graphlaunch 0", "sync", "free 4")
        assert share.used() == share.machine.used() == CHUNK


def test_captured_allocations_stop_at_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("malloc 0 1", "stream 0", "capture 0")
        codes = [
            client.do(step).code
            for step in (f"asyncon 1 {LIMIT} 0", "endcapture 0 0", "instantiate 0 0", "graphlaunch 0")
        ]
        assert OUT_OF_MEMORY in codes
        assert share.machine.peak() <= LIMIT


def test_what_was_captured_from_a_pool_keeps_nothing_of_it_charged(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("pool 0 0", "usepool 0 0", "stream 0", "frompool 1 0 1000")
        client.must("capture 0", "asyncon 2 1000 0", "endcapture 0 0", "poolfree 0", "free 1", "sync", "sync")
        assert share.used() == share.machine.used() == 0


def test_a_graph_with_memory_of_two_gpus_is_charged_on_both(tenant: Make) -> None:
    share = tenant(2 * LIMIT, LIMIT, gpus=2)
    with share.ready() as client:
        client.must("graph 0", f"allocnode 0 0 {2 * CHUNK} 0", f"allocnode 0 1 {4 * MIB} 1", "instantiate 0 0")
        client.must("graphfree 0", "graphlaunch 0")
        assert [share.used(gpu) for gpu in range(2)] == [2 * CHUNK, CHUNK]
        assert [share.machine.used(gpu) for gpu in range(2)] == [2 * CHUNK, CHUNK]


def test_a_graph_that_one_of_two_gpus_has_no_room_for_takes_nothing_of_the_other(tenant: Make) -> None:
    share = tenant(LIMIT, LIMIT, gpus=2)
    with share.ready() as client:
        client.must("graph 0", f"allocnode 0 0 {8 * MIB} 0", f"allocnode 0 1 {4 * MIB} 1", "instantiate 0 0")
        client.must("graphfree 0", f"create 2 {LIMIT} 1")
        assert client.do("graphlaunch 0").code == OUT_OF_MEMORY
        assert (share.used(0), share.used(1)) == (0, LIMIT)
        client.must("release 2", "graphlaunch 0")
        assert [share.used(gpu) for gpu in range(2)] == [CHUNK, CHUNK]


def test_a_graph_that_is_uploaded_as_it_is_made_stops_at_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("graph 0", f"allocnode 0 0 {LIMIT}", "freenode 0 0", "malloc 1 1")
        assert client.do("instantiateup 0 0").code == OUT_OF_MEMORY
        assert share.used() == share.machine.peak() == STEP
        client.must("free 1")
        # what was refused is gone: a graph with memory has one executable at most
        assert client.must("instantiateup 0 0").told == (0,)
        assert share.used() == share.machine.used() == LIMIT


def test_nodes_of_a_graph_that_do_not_live_at_once_share_memory(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("graph 0")
        for _ in range(4):
            client.must(f"allocnode 0 0 {LIMIT}", "freenode 0 0")
        client.must("instantiate 0 0", "graphlaunch 0")
        assert share.used() == share.machine.used() == LIMIT


def test_nodes_of_a_graph_that_lie_across_chunks_are_charged_as_a_card_takes_them(tenant: Make) -> None:
    share = tenant(3 * CHUNK)
    with share.ready() as client:
        client.must("graph 0", *(f"allocbeside 0 {name} {40 * MIB}" for name in range(2)), "instantiate 0 0")
        # 80 MiB are in three chunks, but an H200 takes two for each
        assert client.do("graphlaunch 0").code == OUT_OF_MEMORY
        assert share.used() == share.machine.peak() == 0


def test_nodes_of_a_graph_that_live_at_once_stop_at_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("graph 0", *(f"allocbeside 0 {name} {CHUNK}" for name in range(3)), "instantiate 0 0")
        assert client.do("graphlaunch 0").code == OUT_OF_MEMORY
        assert share.used() == share.machine.peak() == 0


@pytest.mark.parametrize("waits", [True, False])
def test_graphs_of_a_stream_share_memory(tenant: Make, waits: bool) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("stream 0", "kernel 0 busy_20ms")
        for name in range(3):
            client.must(f"graph {name}", f"allocnode {name} {name} {LIMIT}", f"kernelnode {name}")
            client.must(f"freenode {name} {name}", f"instantiate {name} {name}")
        for _ in range(2):
            for name in range(3):
                client.must(f"graphlaunchon {name} 0", *(["syncstream 0"] if waits else []))
                assert share.used() == share.machine.used() == LIMIT


def test_graphs_that_run_at_once_on_several_streams_stop_at_the_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("stream 0", "stream 1", "stream 2", "kernel 0 busy_300ms")
        for name in range(3):
            client.must(f"graph {name}", f"allocnode {name} {name} {CHUNK}", f"kernelnode {name}")
            client.must(f"freenode {name} {name}", f"instantiate {name} {name}")
        client.must("graphlaunchon 0 0", "graphlaunchon 1 1")
        assert share.used() == share.machine.used() == LIMIT
        assert client.do("graphlaunchon 2 2").code == OUT_OF_MEMORY
        client.must("syncstream 0", "graphlaunchon 2 2")
        assert share.machine.peak() == LIMIT


def test_a_child_graph_that_was_moved_goes_with_its_parent(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        for _ in range(4):
            client.must("graph 0", f"allocnode 0 0 {CHUNK}", "freenode 0 0", "graph 1", "movechild 1 0")
            client.must("instantiate 1 1", "graphlaunch 1")
            assert share.used() == share.machine.used() == CHUNK
            client.must("execfree 1", "graphfree 1", "graphtrim 0")
            assert share.used() == share.machine.used() == 0
