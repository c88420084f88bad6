"""Streams that are recorded, destroyed while they work, many at once, or of a context that is not current."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import pytest

from appliance.gpu.timetable import Sharer, plan
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import GIB, MIB, OUT_OF_MEMORY, Client, Tenant, gpu_uuid

Make = Callable[..., Tenant]
PERIOD_NS = 100_000_000
MILLISECOND = 1_000_000
NOT_SUPPORTED = 801
INVALIDATED = 901
WRONG_THREAD = 908


def timed(tenant: Make, **settings: object) -> Tenant:
    """A tenant whose launches are gated, with half of the GPU's time."""
    share = tenant(0, compute=Compute.STRICT, **settings)
    now = time.monotonic_ns()
    windows = plan([Sharer("it", 500), Sharer("other", 500)], Compute.STRICT, PERIOD_NS, now)
    share.file.schedule({gpu_uuid(0): windows["it"]}, now)
    return share


def look_at_the_default_stream(client: Client) -> None:
    """Launch so that the library looks whether work on the default stream has ended."""
    client.must("launchon 0 1", "launchon 0 1")


def test_nothing_is_asked_while_the_program_records(tenant: Make) -> None:
    with timed(tenant).ready() as client:
        client.must("kernel 0 busy_20ms", "stream 0", "stream 1", "launch 0 0", "capture 0")
        look_at_the_default_stream(client)
        client.must("endcapture 0 0")


def test_a_thread_that_waits_asks_nothing_once_another_records(tenant: Make) -> None:
    with timed(tenant).ready() as client:
        client.must("stream 0", "recordbeside 0")


def test_a_recording_goes_on_where_its_end_was_refused(tenant: Make) -> None:
    share = timed(tenant, settings={"FAKE_GPU_FAULT": f"cuStreamEndCapture:1:{WRONG_THREAD}"})
    with share.ready() as client:
        client.must("kernel 0 busy_20ms", "stream 0", "stream 1", "launch 0 0", "capture 0")
        assert client.do("endcapture 0 0").code == WRONG_THREAD
        look_at_the_default_stream(client)
        client.must("endcapture 0 0")


@pytest.mark.parametrize(
    "end",
    [["streamfree 0"], ["endcapture 0 0"], ["contextfree 1", "current 0"]],
    ids=["destroyed", "ended", "gone with its context"],
)
def test_work_is_looked_at_again_when_no_stream_is_recorded(tenant: Make, end: list[str]) -> None:
    share = timed(tenant)
    with share.ready() as client:
        client.must("kernel 0 busy_30ms", "stream 2", "context 1 0", "stream 0", "capture 0")
        client.must(*end, "current 0", "launchon 0 2", "launchon 0 2")
        assert share.total().busy_ns >= 25 * MILLISECOND


def test_work_of_a_stream_that_is_destroyed_counts(tenant: Make) -> None:
    share = timed(tenant)
    with share.ready() as client:
        client.must("kernel 0 busy_150ms", "stream 0", "launchon 0 0", "streamfree 0")
        assert share.total().busy_ns >= 140 * MILLISECOND


def test_a_stream_says_where_it_runs_when_no_context_is_current(tenant: Make) -> None:
    share = timed(tenant)
    with share.ready() as client:
        client.must("kernel 0 none", "stream 0", "current 9", "launchon 0 0")
        assert share.total().launches == 1


@pytest.mark.parametrize("call", ["launchon 0 0", "asyncon 0 1000 0"], ids=["launch", "allocation"])
@pytest.mark.parametrize("way", ["proc:0", "proc:2", "dlsym"])
@pytest.mark.parametrize("old", [False, True], ids=["", "driver before 12.8"])
def test_work_on_streams_of_green_contexts_counts_where_no_context_is_current(
    tenant: Make, call: str, way: str, old: bool
) -> None:
    hidden = {"FAKE_GPU_FAULT": f"cuStreamGetDevice:0:{NOT_SUPPORTED}"} if old else {}
    share = timed(tenant, settings=hidden)
    with share.ready(way) as client:
        client.must("kernel 0 none", "green 0 0", "greenstream 0 0", "current 9", call)
        total = share.total()
        assert (total.launches, total.used_bytes > 0) == ((1, False) if call.startswith("launch") else (0, True))
        assert total.used_bytes == share.machine.used()


def test_memory_of_a_green_context_is_that_of_its_device_and_goes_with_the_primary_context(tenant: Make) -> None:
    share = tenant(10 * MIB, settings={"FAKE_GPU_CONTEXT_MIB": "4"})
    with share.client() as client:
        client.must("init", "green 0 0", "green 1 0", "greencurrent 0", f"malloc 0 {2 * MIB}")
        assert share.used() == share.machine.used() == 6 * MIB
        assert client.do(f"malloc 1 {5 * MIB}").code == OUT_OF_MEMORY
        client.must("greenfree 0")
        assert share.used() == share.machine.used() == 6 * MIB, "the other one keeps the primary context"
        client.must("current 9", "greenfree 1")
        assert share.used() == share.machine.used() == 0


def test_a_stream_says_on_which_of_several_gpus_it_works(tenant: Make) -> None:
    share = tenant(GIB, GIB, gpus=2)
    with share.ready() as client:
        client.must("stream 0", "primary 1 1", "asyncon 0 1000 0")
        assert (share.used(0), share.used(1)) == (share.machine.used(0), share.machine.used(1))
        assert share.used(0) > 0


def test_threads_that_meet_a_pool_together_count_it_once(tenant: Make) -> None:
    for _ in range(20):
        share = tenant(0)
        with share.ready() as client:
            client.must("asynctogether 8 1000")
            assert share.used() == share.machine.used()


def test_a_thread_that_is_cancelled_in_a_call_holds_up_nobody(tenant: Make) -> None:
    share = timed(tenant)
    [limit] = share.file.limits()
    share.file.change([type(limit)(limit.uuid, GIB, limit.milli, limit.compute)])
    with share.ready() as client:
        client.send("cancel 300")
        assert client.process.stdout
        ready, _, _ = select.select([client.process.stdout], [], [], 60)
        assert ready, "a lock was never given back"
        assert client.answer().code == 0


def test_work_on_the_own_stream_of_another_thread_is_known(tenant: Make) -> None:
    with timed(tenant).ready() as client:
        # behind 200 ms of the other thread, whose stream this one cannot ask about
        assert client.must("ownstreams").told[0] >= 150
