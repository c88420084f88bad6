"""How long memory stays charged: handles, descriptors, pools, contexts, and processes that end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from tests.fakes.cuda.clients import GIB, INVALID_VALUE, MIB, OUT_OF_MEMORY, Tenant

Make = Callable[..., Tenant]

LIMIT = 64 * MIB

STEP = 2 * MIB

CHUNK = 32 * MIB
"""What pools and graphs take at a time."""


@pytest.mark.parametrize(
    "order",
    list(permutations(["release 0", "release 1", f"unmap 0 {STEP}", f"unmap 1 {STEP}"])),
    ids=lambda order: " ".join(word.split()[0][0] + word.split()[1] for word in order),
)
def test_memory_is_charged_until_the_last_handle_and_mapping_has_gone(tenant: Make, order: tuple[str, ...]) -> None:
    share = tenant(STEP)
    with share.ready() as client:
        client.must(
            f"create 0 {STEP} 0", f"reserve 0 {STEP}", f"reserve 1 {STEP}", f"map 0 0 {STEP}", f"map 1 0 {STEP}"
        )
        client.must("retain 1 0")
        for step in order[:-1]:
            client.must(step)
            assert share.used() == share.machine.used() == STEP
            assert client.do(f"create 2 {STEP} 0").code == OUT_OF_MEMORY
        client.must(order[-1])
        assert (share.used(), share.machine.used()) == (0, 0)
        client.must(f"create 2 {STEP} 0")


def test_one_unmap_of_many_mappings_counts_each(tenant: Make) -> None:
    share = tenant(8 * STEP)
    with share.ready() as client:
        client.must(f"reserve 0 {4 * STEP}")
        for number in range(4):
            client.must(f"create {number} {STEP} 0", f"map 0 {number} {STEP} {number * STEP}", f"release {number}")
        assert share.used() == 4 * STEP
        client.must(f"unmap 0 {2 * STEP} {STEP}")
        assert share.used() == share.machine.used() == 2 * STEP
        client.must(f"unmap 0 {STEP}", f"unmap 0 {STEP} {3 * STEP}", f"unreserve 0 {4 * STEP}")
        assert (share.used(), share.machine.used()) == (0, 0)


def test_a_refused_unmap_changes_nothing(tenant: Make) -> None:
    share = tenant(STEP)
    with share.ready() as client:
        client.must(f"create 0 {STEP} 0", f"reserve 0 {STEP}", f"map 0 0 {STEP}", "release 0")
        assert client.do(f"unmap 0 {STEP // 2}").code == 1
        assert share.used() == STEP


def test_memory_stays_charged_while_a_descriptor_holds_it(tenant: Make) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must(f"create 0 {STEP} 0", "export 0 0", "export 0 1", "release 0", "close 0")
        assert client.must("info").told == (STEP, 2 * STEP)
        assert share.used() == share.machine.used() == STEP
        assert client.do(f"create 1 {2 * STEP} 0").code == OUT_OF_MEMORY
        client.must("close 1", f"create 1 {2 * STEP} 0")
        assert share.used() == share.machine.used() == 2 * STEP


def test_memory_stays_charged_while_a_handle_that_came_by_a_descriptor_holds_it(tenant: Make) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must(f"create 0 {STEP} 0", "export 0 0", "import 1 0", "close 0", "release 0")
        assert client.must("info").told == (STEP, 2 * STEP)
        assert share.used() == share.machine.used() == STEP
        client.must(f"reserve 1 {STEP}", f"map 1 1 {STEP}", "release 1", "info")
        assert share.used() == share.machine.used() == STEP
        client.must(f"unmap 1 {STEP}", "info")
        assert share.used() == share.machine.used() == 0


def test_what_came_by_a_descriptor_is_not_passed_on_and_nothing_of_it_is_charged(tenant: Make) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must(f"create 0 {STEP} 0", "export 0 0", "import 1 0")
        assert client.do("export 1 1").code == INVALID_VALUE
        client.must("close 0", "release 0", "release 1", "info")
        assert share.used() == share.machine.used() == 0


@pytest.mark.parametrize("last", ["unmappart 0 0", "arrayfree 0"])
def test_memory_stays_charged_while_a_sparse_array_holds_it(tenant: Make, last: str) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must("sparse 0", f"create 0 {STEP} 0", "mappart 0 0 0", "mappart 0 64 0", "release 0", "unmappart 0 64")
        assert share.used() == share.machine.used() == STEP
        assert client.do(f"create 1 {2 * STEP} 0").code == OUT_OF_MEMORY
        client.must(last)
        assert share.used() == share.machine.used() == 0


def test_other_memory_behind_a_part_of_a_sparse_array_sets_the_first_free(tenant: Make) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must("sparse 0", f"create 0 {STEP} 0", "mappart 0 0 0", "release 0")
        client.must(f"create 1 {STEP} 0", "mappart 0 0 1", "release 1")
        assert share.used() == share.machine.used() == STEP


def test_a_child_that_inherits_a_descriptor_keeps_its_memory_charged(tenant: Make) -> None:
    share = tenant(2 * STEP)
    with share.ready() as client:
        client.must(f"create 0 {STEP} 0", "export 0 0", "release 0", "fork", "close 0")
        assert share.used() == STEP


@pytest.mark.parametrize(
    ("area", "size", "takes"), [(0, 2048, 80 * 2048 * 1024), (1, 3 * MIB, STEP), (2, GIB, GIB - 8 * MIB)]
)
def test_what_a_context_keeps_for_its_kernels_is_charged(tenant: Make, area: int, size: int, takes: int) -> None:
    share = tenant(2 * GIB)
    with share.ready() as client:
        client.must(f"limit {area} {size}")
        assert share.used() == share.machine.used() == takes
        assert client.do(f"limit {area} {size * 100}").code == OUT_OF_MEMORY or area == 1
        client.must(f"limit {area} 1024")
        assert share.used() == share.machine.used() == 0
        client.must("context 1 0", f"limit {area} {size}", "contextfree 1")
        assert share.used() == share.machine.used() == 0


def test_trimming_a_pool_gives_back_to_the_share(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("pool 0 0", "threshold 0 1000000000000", f"frompool 0 0 {48 * MIB}")
        assert share.used() == share.machine.used() == 64 * MIB
        client.must("freeasync 0", "sync")
        assert share.used() == share.machine.used() == 64 * MIB
        client.must(f"trim 0 {33 * MIB}")
        assert share.used() == 64 * MIB
        client.must(f"trim 0 {32 * MIB}")
        assert share.used() == share.machine.used() == 32 * MIB
        client.must("trim 0 0")
        assert (share.used(), share.machine.used()) == (0, 0)


@pytest.mark.parametrize("synchronise", ["sync"])
def test_a_pool_that_shrinks_by_itself_gives_back_to_the_share(tenant: Make, synchronise: str) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(f"async 0 {48 * MIB}", "freeasync 0", synchronise)
        assert share.machine.used() == 0
        client.must(f"malloc 1 {LIMIT}")
        assert share.used() == share.machine.used() == LIMIT


PINNED, MANAGED = 1, 2

NOWHERE, DEVICE, HOST, PART_OF_DEVICE = 0, 1, 2, 6
"""Types of memory and of places, as the driver numbers them."""


@pytest.mark.parametrize("kind", [(MANAGED, NOWHERE), (MANAGED, DEVICE), (PINNED, PART_OF_DEVICE)])
def test_pools_of_managed_memory_and_of_parts_of_a_gpu_are_charged(tenant: Make, kind: tuple[int, int]) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(f"poolof 0 {kind[0]} {kind[1]}", f"frompool 0 0 {32 * MIB}")
        assert share.used() == share.machine.used() == 32 * MIB
        assert client.do(f"frompool 1 0 {LIMIT}").code == OUT_OF_MEMORY
        client.must("freeasync 0", "sync", "poolfree 0")
        assert share.used() == share.machine.used() == 0


@pytest.mark.parametrize(("kind", "charged"), [((PINNED, HOST), 0), ((MANAGED, NOWHERE), 32 * MIB)])
def test_default_pools_are_charged_where_their_memory_is(tenant: Make, kind: tuple[int, int], charged: int) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(f"defaultof 0 {kind[0]} {kind[1]}", f"frompool 0 0 {32 * MIB}")
        assert share.used() == share.machine.used() == charged


@pytest.mark.parametrize("kind", [PINNED, MANAGED])
def test_pools_of_the_host_are_not_charged(tenant: Make, kind: int) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(f"poolof 0 {kind} {HOST}", f"frompool 0 0 {2 * LIMIT}")
        assert share.used() == share.machine.used() == 0


def test_what_the_driver_refuses_to_destroy_stays_charged(tenant: Make) -> None:
    faults = "cuCtxDestroy_v2:1:999,cuGraphDestroy:1:999,cuGraphExecDestroy:1:999"
    share = tenant(LIMIT, settings={"FAKE_GPU_FAULT": faults})
    with share.ready() as client:
        client.must("graph 0", f"allocnode 0 0 {STEP}", "freenode 0 0", "instantiate 0 0", "graphlaunch 0")
        client.must("context 1 0", f"malloc 1 {STEP}")
        for name in ("contextfree 1", "graphfree 0", "execfree 0"):
            assert client.do(name).code == 999
            assert share.used() == share.machine.used() == CHUNK + STEP
        client.must("contextfree 1")
        assert share.used() == CHUNK
        client.must("execfree 0", "graphfree 0", "graphtrim 0")
        assert share.used() == 0


@pytest.mark.parametrize("way", ["linked", "proc:0"])
def test_a_child_of_fork_is_charged_for_itself(tenant: Make, way: str) -> None:
    share = tenant(3 * GIB)
    with share.ready(way) as client:
        client.must(f"malloc 0 {GIB}", "fork", f"malloc 1 {GIB}")
        assert share.used() == share.machine.used() == 2 * GIB
        assert client.do(f"malloc 2 {GIB + 1}").code == OUT_OF_MEMORY
        client.must("free 1")
        assert share.used() == share.machine.used() == GIB
    with share.ready() as other:
        other.must(f"malloc 0 {3 * GIB}")


def test_another_program_after_exec_starts_with_nothing(tenant: Make) -> None:
    share = tenant(3 * GIB)
    with share.ready() as client:
        client.must(f"malloc 0 {2 * GIB}")
        client.send("exec")
        client.must("init", "primary 0 0", f"malloc 0 {3 * GIB}")
        assert share.used() == share.machine.used() == 3 * GIB


def test_a_second_user_of_the_container_has_the_same_share(tenant: Make) -> None:
    share = tenant(3 * GIB)
    with share.ready() as root, share.ready(user=12345) as other:
        root.must(f"malloc 0 {GIB}")
        assert other.must("info").told == (2 * GIB, 3 * GIB)
        other.must(f"malloc 0 {2 * GIB}")
        assert root.do("malloc 1 1").code == OUT_OF_MEMORY
    with share.ready(user=12345) as other:
        other.must(f"malloc 0 {3 * GIB}")


def test_what_an_ended_process_held_is_free_for_the_next(tenant: Make) -> None:
    share = tenant(GIB)
    for _ in range(3):
        with share.ready() as client:
            client.must(f"malloc 0 {GIB}")
    assert share.machine.peak() == GIB
