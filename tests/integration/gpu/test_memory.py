"""Memory limits, exact at the limit for everything that allocates, whichever way the driver's functions were found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.cuda.clients import GIB, MIB, OUT_OF_MEMORY, WAYS, Tenant

LIMIT = 4 * GIB
PAGE = 2 * MIB
Make = Callable[..., Tenant]


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_itself_fits_and_one_byte_more_does_not(tenant: Make, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        assert client.do(f"malloc 0 {LIMIT + 1}").code == OUT_OF_MEMORY
        client.must(f"malloc 0 {LIMIT}")
        assert share.machine.used() == share.used() == LIMIT
        assert client.do("malloc 1 1").code == OUT_OF_MEMORY
        client.must("free 0", "malloc 1 1")
        assert share.machine.used() == share.used() == PAGE
    assert share.machine.peak() == LIMIT


@pytest.mark.parametrize(
    ("fits", "more", "frees"),
    [
        (f"malloc 0 {LIMIT}", "malloc 1 1", "free 0"),
        (f"managed 0 {LIMIT}", "managed 1 1", "free 0"),
        # a row of 513 bytes takes a pitch of 1024
        (f"pitch 0 513 {LIMIT // 1024}", "pitch 1 1 1", "free 0"),
        (f"array 0 1024 {LIMIT // 1024}", "array 1 1 1", "arrayfree 0"),
        (f"array 0 1024 1024 {LIMIT // MIB}", "array 1 1 1 1", "arrayfree 0"),
        (f"create 0 {LIMIT} 0", f"create 1 {2 * MIB} 0", "release 0"),
    ],
    ids=["plain", "managed", "pitched", "array", "three dimensions", "virtual"],
)
@pytest.mark.parametrize("way", ["linked", "proc:0", "proc:2"])
def test_every_allocator_is_exact_at_the_limit(tenant: Make, way: str, fits: str, more: str, frees: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        client.must(fits)
        assert share.machine.used() == LIMIT
        assert client.do(more).code == OUT_OF_MEMORY
        client.must(frees)
        assert (share.machine.used(), share.used()) == (0, 0)
        client.must(more)


@pytest.mark.parametrize("way", ["proc:0", "proc:2"])
def test_pools_count_by_what_they_reserve(tenant: Make, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        client.must("pool 0 0", "threshold 0 1000000000000", f"frompool 0 0 {LIMIT - 32 * MIB + 1}", "freeasync 0")
        reserved = client.must("sync", "reserved 0").told[0]
        assert reserved == share.machine.used() == share.used() == LIMIT
        assert client.do("malloc 1 1").code in {0, OUT_OF_MEMORY}
        assert share.machine.peak() <= LIMIT
        client.must("trim 0 0")
        assert share.machine.used() == share.used() <= PAGE


@pytest.mark.parametrize("way", ["linked", "proc:0", "proc:2"])
def test_a_pool_at_the_limit_refuses_and_the_default_pool_too(tenant: Make, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        client.must("pool 0 0", f"frompool 0 0 {LIMIT}")
        assert client.do("async 1 1").code == OUT_OF_MEMORY
        assert client.do("frompool 1 0 1").code == OUT_OF_MEMORY
        client.must("freeasync 0", "sync", f"async 1 {LIMIT}")
        assert client.do("malloc 2 1").code == OUT_OF_MEMORY
    assert share.machine.peak() == LIMIT


def test_idle_memory_of_a_pool_makes_room_for_another_allocation(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("pool 0 0", "threshold 0 1000000000000", f"frompool 0 0 {LIMIT}", "freeasync 0")
        client.must("pool 1 0", f"frompool 1 1 {GIB}")
    assert share.machine.peak() == LIMIT


def test_destroyed_pools_and_contexts_give_everything_back(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("pool 0 0", "frompool 0 0 1000", "freeasync 0", "poolfree 0", "sync")
        assert (share.machine.used(), share.used()) == (0, 0)
        client.must("context 1 0", f"malloc 1 {GIB}", f"managed 2 {GIB}", "contextfree 1")
        assert (share.machine.used(), share.used()) == (0, 0)


def test_contexts_take_their_size_from_the_share(tenant: Make) -> None:
    share = tenant(LIMIT, settings={"FAKE_GPU_CONTEXT_MIB": "300"})
    with share.ready() as client:
        assert client.must("info").told == (LIMIT - 300 * MIB, LIMIT)
        assert client.do(f"malloc 0 {LIMIT - 300 * MIB + 1}").code == OUT_OF_MEMORY
        client.must(f"malloc 0 {LIMIT - 300 * MIB}")
        assert share.used() == share.machine.used() == LIMIT
        client.must("free 0", "unprimary 0")
        assert (share.machine.used(), share.used()) == (0, 0)


def test_a_neighbour_that_takes_memory_at_the_same_time_spoils_the_size_of_contexts_only_once(tenant: Make) -> None:
    share = tenant(GIB, settings={"FAKE_GPU_CONTEXT_MIB": "900"})
    with share.ready():
        # 600 MiB of what NVML saw were a neighbour's
        assert share.used() == 900 * MIB
    share.settings["FAKE_GPU_CONTEXT_MIB"] = "300"
    with share.ready() as first, share.ready() as second:
        first.must("malloc 0 1")
        assert share.used() == 600 * MIB + PAGE
        assert second.do(f"malloc 0 {GIB - 600 * MIB}").code == OUT_OF_MEMORY


def test_what_no_context_takes_is_not_kept_as_the_size_of_one(tenant: Make) -> None:
    share = tenant(LIMIT, settings={"FAKE_GPU_CONTEXT_MIB": "2000"})
    with share.ready():
        assert share.used() == 0


def test_a_context_that_was_measured_just_now_is_not_refused(tenant: Make) -> None:
    share = tenant(100 * MIB, settings={"FAKE_GPU_CONTEXT_MIB": "300"})
    with share.ready() as client:
        assert share.used() == 0
        client.must(f"malloc 0 {100 * MIB}")


def test_contexts_are_refused_once_their_size_is_sure(tenant: Make) -> None:
    share = tenant(700 * MIB, settings={"FAKE_GPU_CONTEXT_MIB": "300"})
    with share.ready(), share.ready(), share.client() as third:
        third.must("init")
        assert third.do("primary 0 0").code == OUT_OF_MEMORY
        assert share.used() == 600 * MIB


def test_memory_of_a_pool_may_be_freed_by_the_plain_call_and_after_its_pool(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("pool 0 0", "frompool 0 0 1000", "free 0", "frompool 1 0 1000", "poolfree 0")
        assert share.used() > 0
        client.must("free 1", "sync", "sync")
        assert share.used() == 0


def test_blocks_count_the_whole_pages_that_they_take(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(*(f"malloc {name} {PAGE + 512}" for name in range(60)))
        assert share.used() == share.machine.used() == 60 * 2 * PAGE
        client.must(*(f"free {name}" for name in range(60)))
        assert share.used() == share.machine.used() == 0


@pytest.mark.parametrize("allocator", ["malloc", "managed"])
def test_small_blocks_share_pages_until_the_last_of_one_has_gone(tenant: Make, allocator: str) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(*(f"{allocator} {name} {PAGE // 4}" for name in range(6)))
        assert share.used() == share.machine.used() == 2 * PAGE
        client.must("free 0", "free 1", "free 2")
        assert share.used() == share.machine.used() == 2 * PAGE
        client.must("free 3")
        assert share.used() == share.machine.used() == PAGE
        client.must("context 1 0", f"{allocator} 0 1")
        assert share.used() == share.machine.used() == 2 * PAGE, "a context has pages of its own"
        client.must("contextfree 1", "current 0", "free 4", "free 5")
        assert share.used() == share.machine.used() == 0


def test_small_arrays_lie_together(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(*(f"array {name} 1024 {PAGE // 4096}" for name in range(5)))
        assert share.used() == share.machine.used() == 2 * PAGE
        client.must("arrayfree 0")
        assert share.used() == share.machine.used() == PAGE


@pytest.mark.parametrize(
    ("shape", "pages"),
    [("400000 1", 2), ("4097 4097", 9), ("100 100 100", 1), ("257 8208", 2), ("8192 512 40", 96), ("64 64 64", 1)],
)
def test_arrays_take_whole_tiles(tenant: Make, shape: str, pages: int) -> None:
    # pages as an H200 takes them, where so many bytes would be fewer
    share = tenant(200 * MIB)
    with share.ready() as client:
        client.must(f"array 0 {shape}")
        assert share.machine.used() == share.used() == pages * PAGE
        client.must("arrayfree 0")
        assert share.machine.used() == share.used() == 0


def test_arrays_larger_than_half_a_page_have_it_to_themselves(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("array 0 100 100 100", "array 1 64 64", "array 2 64 64")
        assert share.machine.used() == share.used() == 2 * PAGE


def test_mipmaps_count_all_their_levels(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must("mipmap 0 4096 4096 3")
        # the third level is half a page
        assert share.machine.used() == share.used() == 16 * MIB + 4 * MIB + PAGE
        client.must("mipmapfree 0")
        assert share.used() == 0


def test_host_memory_is_free_of_charge(tenant: Make) -> None:
    share = tenant(1)
    with share.ready() as client:
        client.must("host 100000", f"createhost 0 {2 * MIB}", "release 0")
    assert (share.total().refused, share.machine.peak()) == (0, 0)


def test_another_process_memory_is_charged_once(tenant: Make) -> None:
    share = tenant(4 * MIB)
    with share.ready() as client:
        client.must(f"create 0 {4 * MIB} 0", "share 0 1", "release 1")
        assert share.used() == 4 * MIB
        client.must("release 0")
        assert share.used() == 0


def test_memory_is_charged_where_it_lies(tenant: Make) -> None:
    share = tenant(4 * MIB, 8 * MIB, gpus=2)
    with share.ready() as client:
        # the context is the first GPU's, the memory the second's
        client.must(f"create 0 {8 * MIB} 1")
        assert (share.used(0), share.used(1)) == (0, 8 * MIB)
        assert client.do(f"create 1 {2 * MIB} 1").code == OUT_OF_MEMORY
        client.must(f"create 1 {4 * MIB} 0")


def test_a_failure_of_the_driver_is_no_charge(tenant: Make) -> None:
    share = tenant(LIMIT, settings={"FAKE_GPU_FAULT": "cuMemAlloc_v2:1:2,cuMemCreate:1:999,cuArrayCreate_v2:1:2"})
    with share.ready() as client:
        assert client.do("malloc 0 1000").code == 2
        assert client.do(f"create 0 {2 * MIB} 0").code == 999
        assert client.do("array 0 100 100").code == 2
        assert share.used() == 0
        client.must(f"malloc 0 {LIMIT}")


def test_no_limit_is_no_limit(tenant: Make) -> None:
    share = tenant(0)
    with share.ready() as client:
        client.must(f"malloc 0 {16 * GIB}")
        assert client.must("info").told == (0, 16 * GIB)


def test_processes_of_a_container_share_its_limit(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready("proc:0") as first, share.ready("linked") as second:
        first.must(f"malloc 0 {3 * GIB}")
        assert second.must("info").told == (GIB, LIMIT)
        assert second.do(f"malloc 0 {GIB + 1}").code == OUT_OF_MEMORY
        second.must(f"malloc 0 {GIB}")
        first.must("free 0")
        assert second.must("info").told == (3 * GIB, LIMIT)


def test_containers_do_not_share_a_limit(tenant: Make) -> None:
    one, other = tenant(LIMIT), tenant(2 * GIB)
    with one.ready() as first, other.ready() as second:
        first.must(f"malloc 0 {LIMIT}")
        second.must(f"malloc 0 {2 * GIB}")
        assert first.must("info").told == (0, LIMIT)
        assert second.must("total 0").told == (2 * GIB,)
    assert one.machine.peak() == 6 * GIB
