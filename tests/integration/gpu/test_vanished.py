"""Devices that go away under programs: a GPU that falls off the bus, and clients of MIG's slices that are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from appliance.gpu.timetable import Sharer, plan
from common.gpu.kinds import Compute
from tests.fakes.cuda.clients import MIB, OUT_OF_MEMORY, Bench, Client, Tenant, gpu_uuid
from tests.fakes.cuda.machine import Machine

Make = Callable[..., Tenant]
LIMIT = 64 * MIB
ILLEGAL_ADDRESS, VANISHED = 700, 999


def test_a_gpu_that_vanishes_holds_up_nobody_and_what_was_charged_goes_with_the_process(
    tenant: Make, tmp_path: Path
) -> None:
    health = tmp_path / "health"
    health.touch()
    settings = {"FAKE_GPU_HEALTH": str(health)}
    share = tenant(LIMIT, LIMIT, gpus=2, compute=Compute.STRICT, settings=settings)
    now = time.monotonic_ns()
    windows = plan([Sharer("it", 500), Sharer("other", 500)], Compute.STRICT, 100_000_000, now)
    share.file.schedule({gpu_uuid(gpu): windows["it"] for gpu in range(2)}, now)
    with share.client() as client:
        client.must("init", "primary 1 1", f"malloc 1 {4 * MIB}", "primary 0 0", f"malloc 0 {8 * MIB}")
        client.must("stream 0", "kernel 0 busy_60000ms", "kernel 1 busy_1ms", "launch 0 0")
        health.write_text("0 lost 1\n")
        begun = time.monotonic()
        for command in (
            "launch 1 0",
            "launchon 1 0",
            "sync",
            "free 0",
            "malloc 2 1000",
            "async 2 1000",
            "contextfree 0",
        ):
            assert client.do(command).code == VANISHED, command
        assert client.do("streamfree 0").code == VANISHED
        assert time.monotonic() - begun < 30
        assert [share.used(gpu) for gpu in range(2)] == [8 * MIB, 4 * MIB], "what the driver did not free stays charged"
        client.must("current 1", "launch 1 0", "sync", f"malloc 3 {LIMIT - 4 * MIB}")
        assert client.do("malloc 4 1").code == OUT_OF_MEMORY
    health.write_text("")
    with share.ready() as after:
        assert after.must("info").told == (LIMIT, LIMIT)


def slice_client(bench: Bench, machine: Machine, instance: int) -> Client:
    """A program in a container with one slice of the first GPU, whose health stands beside the machine's state."""
    environment = {
        "FAKE_GPU_HEALTH": str(machine.state.with_name("health")),
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(bench.library),
        "FAKE_GPU_COUNT": "1",
        "FAKE_GPU_MEMORY_MIB": "81920",
        "FAKE_GPU_MIG": "0:1g.10gb*2",
        "FAKE_GPU_CUDA": "13050",
        "CUDA_VISIBLE_DEVICES": f"MIG-00000000-0000-0000-0000-{instance:012}",
        **machine.environment,
    }
    return Client([bench.client, "proc:0"], environment)


def test_a_client_of_a_slice_ends_at_its_memory_and_one_that_is_killed_leaves_the_others_alone(
    bench: Bench, tmp_path: Path
) -> None:
    machine = Machine(bench.library, tmp_path / "state")
    with slice_client(bench, machine, 0) as stays, slice_client(bench, machine, 1) as goes:
        stays.must("init", "primary 0 0")
        free, total = stays.must("info").told
        assert free == total < 11 << 30
        stays.must(f"malloc 0 {total - 4 * MIB}")
        assert stays.do(f"malloc 1 {8 * MIB}").code == OUT_OF_MEMORY
        # the other slice has its own memory
        goes.must("init", "primary 0 0", f"malloc 0 {total}")
        assert stays.must("info").told == (4 * MIB, total)
        goes.process.kill()
        goes.process.wait()
        stays.must(f"malloc 1 {4 * MIB}", "free 0")
        with slice_client(bench, machine, 1) as following:
            following.must("init", "primary 0 0", f"malloc 0 {total}")


def test_a_program_whose_slice_is_no_more_gets_no_gpu_at_all(bench: Bench, tmp_path: Path) -> None:
    with slice_client(bench, Machine(bench.library, tmp_path / "state"), 5) as client:
        assert client.do("init").code == 100, "CUDA_ERROR_NO_DEVICE"


def test_a_fault_in_a_slice_ends_its_own_program_alone(bench: Bench, tmp_path: Path) -> None:
    machine = Machine(bench.library, tmp_path / "state")
    with slice_client(bench, machine, 0) as stays, slice_client(bench, machine, 1) as guilty:
        for client in (stays, guilty):
            client.must("init", "primary 0 0", f"malloc 0 {MIB}")
        guilty.must("kernel 0 wrong_address", "launch 0 0")
        assert guilty.do("sync").code == ILLEGAL_ADDRESS
        stays.must("kernel 0 busy_1ms", "launch 0 0", "sync", f"malloc 1 {MIB}")
    with slice_client(bench, machine, 1) as following:
        following.must("init", "primary 0 0", f"malloc 0 {MIB}")


def test_programs_of_all_slices_fail_when_their_gpu_vanishes(bench: Bench, tmp_path: Path) -> None:
    machine = Machine(bench.library, tmp_path / "state")
    with slice_client(bench, machine, 0) as first, slice_client(bench, machine, 1) as second:
        for client in (first, second):
            client.must("init", "primary 0 0", f"malloc 0 {MIB}", "kernel 0 busy_60000ms", "launch 0 0")
        (tmp_path / "health").write_text("0 lost 1\n")
        begun = time.monotonic()
        for client in (first, second):
            assert [client.do(command).code for command in ("sync", "launch 0 0", "malloc 1 1")] == [VANISHED] * 3
        assert time.monotonic() - begun < 30
