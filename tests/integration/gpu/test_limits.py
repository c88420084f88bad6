"""The shim in short: what it charges, shows and hooks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest

from appliance.gpu import layout
from tests.fakes.cuda.clients import GIB, OUT_OF_MEMORY, WAYS, Tenant, gpu_uuid

Make = Callable[..., Tenant]
LIMIT = 2 * GIB


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_is_all_there_is(tenant: Make, way: str) -> None:
    share = tenant(LIMIT)
    with share.ready(way) as client:
        assert client.must("total 0").told == (LIMIT,)
        assert client.do(f"malloc 0 {LIMIT + 1}").code == OUT_OF_MEMORY
        client.must(f"malloc 0 {LIMIT}")
        assert client.do("malloc 1 1").code == OUT_OF_MEMORY
        assert client.must("info").told == (0, LIMIT)
        client.must("free 0")
        assert (share.used(), share.machine.used(), share.machine.peak()) == (0, 0, LIMIT)


@pytest.mark.parametrize(
    "allocation",
    [
        f"managed 0 {LIMIT}",
        f"pitch 0 512 {LIMIT // 512}",
        f"array 0 1024 {LIMIT // 1024}",
        f"create 0 {LIMIT} 0",
        f"async 0 {LIMIT}",
    ],
    ids=lambda allocation: allocation.split()[0],
)
def test_everything_that_allocates_is_charged(tenant: Make, allocation: str) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        client.must(allocation)
        assert share.used() == share.machine.used() == LIMIT
        assert client.do("malloc 1 1").code == OUT_OF_MEMORY


def test_what_a_killed_process_held_is_free(tenant: Make) -> None:
    share = tenant(LIMIT)
    for _ in range(2):
        with share.ready() as client:
            client.must(f"malloc 0 {LIMIT}")


def test_without_limits_nothing_changes(tenant: Make) -> None:
    share = tenant(LIMIT)
    (share.folder / "limits").unlink()
    with share.ready() as client:
        assert client.must("info").told == (16 * GIB, 16 * GIB)


def test_what_the_account_does_not_know_makes_memory_run_out(tenant: Make) -> None:
    share = tenant(LIMIT)
    with share.ready() as client:
        share.file.charge({gpu_uuid(0): 3 * LIMIT // 4})
        assert client.must("info").told == (LIMIT // 4, LIMIT)
        assert client.do(f"malloc 0 {LIMIT // 2}").code == OUT_OF_MEMORY
        client.must(f"malloc 0 {LIMIT // 4}")
        share.file.charge({gpu_uuid(0): 2 * LIMIT})
        assert client.must("info").told == (0, LIMIT)
        share.file.charge({gpu_uuid(0): 0})
        client.must(f"malloc 1 {3 * LIMIT // 4}")


def test_a_file_of_an_earlier_release_has_nothing_uncounted(tenant: Make) -> None:
    share = tenant(LIMIT)
    os.truncate(share.folder / "limits", ctypes.sizeof(layout.SecondLimitsRecord))
    with share.ready() as client:
        client.must(f"malloc 0 {LIMIT}")
        assert client.must("info").told == (0, LIMIT)
