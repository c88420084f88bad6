"""Samples of what containers use, and their way to the control API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.agent.reports.gpu_metrics import MAX_SAMPLES, Outbox, Sampler
from appliance.agent.shares.gpu_readings import GpuReadings
from appliance.gpu import layout
from common.gpu.kinds import Compute
from common.protocol import METRICS_PATH, GpuMetrics, MetricsReport
from tests.unit.appliance.agent.docker.test_node_info import settings
from tests.unit.appliance.agent.shares.test_arbiter import Node
from tests.unit.appliance.agent.shares.test_memory_enforcer import Processes, readings
from tests.unit.appliance.agent.shares.test_share_manager import gpu_share
from tests.unit.appliance.gpu.samples import GPU, SECOND

MIB = 1 << 20


class Watched(Node):
    """A node whose containers c1 and c2 are sampled on a clock that a test turns."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: Compute = Compute.FAIR) -> None:
        super().__init__(folder, mode)
        monkeypatch.setattr("appliance.agent.reports.gpu_metrics.time.monotonic_ns", lambda: self.now)
        self.processes = Processes()
        self.readings: GpuReadings = readings(self.shares, self.processes)
        self.sampler = Sampler(self.shares, self.readings, self.preload)

    def account(self, identity: str, **totals: int) -> None:
        path = self.folder / "gpu" / identity / "account/account"
        head = layout.AccountHead.from_buffer_copy(path.read_bytes())
        for name, value in totals.items():
            setattr(head.gpu[0], name, value)
        with path.open("r+b") as file:
            file.write(bytes(head))

    def take(self, seconds: float = 15) -> dict[tuple[str, str], tuple[int, int | None, int]]:
        self.now += int(seconds * 1e9)
        samples = self.sampler.take({"c1": "session-1", "c2": "session-2"})
        assert all(sample.session_id == sample.container_id.replace("c", "session-") for sample in samples)
        return {(s.container_id, s.uuid): (s.memory_mib, s.busy_permille, s.processes) for s in samples}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_memory_comes_from_nvml_and_busy_time_from_the_account(node: Watched) -> None:
    node.run("c1", gpu_share(GPU, 500))
    node.shares.attach("c1", "engine-c1", 1)
    node.processes.by_gpu["GPU-1"] = {10: 100 * MIB, 11: 28 * MIB}
    assert node.take() == {("c1", "GPU-1"): (128, None, 2)}, "nobody knows how busy it was before the first sample"
    node.account("c1", busy_ns=3 * 10**9)
    assert node.take() == {("c1", "GPU-1"): (128, 200, 2)}
    assert node.take() == {("c1", "GPU-1"): (128, 0, 2)}


def test_what_an_account_says_is_kept_within_what_can_be(node: Watched) -> None:
    node.run("c1", gpu_share(GPU, 500))
    node.take()
    node.account("c1", busy_ns=1 << 63)
    assert node.take()["c1", "GPU-1"][1] == 1000
    node.account("c1", busy_ns=1)
    assert node.take()["c1", "GPU-1"][1] == 0


def test_without_nvml_the_account_tells_the_memory(node: Watched) -> None:
    node.run("c1", gpu_share(GPU, 500))
    node.account("c1", used=(64 * MIB) | 1 << 60)
    assert node.take() == {("c1", "GPU-1"): (64, None, 0)}


def test_a_whole_gpu_s_busy_time_comes_from_nvml_or_is_not_known(node: Watched) -> None:
    node.run("c1", gpu_share(GPU, 1000))
    node.run("c2", gpu_share(SECOND, 1000))
    node.shares.attach("c1", "engine-c1", 1)
    node.processes.by_gpu["GPU-1"], node.processes.permille = {10: 5 * MIB}, {10: 730}
    assert node.take() == {("c1", "GPU-1"): (5, 730, 1), ("c2", "GPU-2"): (0, None, 0)}


def test_where_the_shim_does_not_share_time_nvml_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Watched(tmp_path, monkeypatch, Compute.OFF)
    node.run("c1", gpu_share(GPU, 500))
    node.shares.attach("c1", "engine-c1", 1)
    node.processes.by_gpu["GPU-1"], node.processes.permille = {10: 5 * MIB}, {10: 42}
    assert node.take() == {("c1", "GPU-1"): (5, 42, 1)}


def samples(count: int, first: int = 0) -> list[GpuMetrics]:
    at = datetime.now(UTC)
    return [
        GpuMetrics(container_id=f"c{first + number}", session_id="s", uuid="GPU-1", at=at, memory_mib=1)
        for number in range(count)
    ]


class Api:
    """The control API: answers as a test says, and keeps the ids of the containers whose samples it takes."""

    def __init__(self) -> None:
        self.answer: int | Exception = 204
        self.taken: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == METRICS_PATH
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer == 204:
            self.taken += [sample.container_id for sample in MetricsReport.model_validate_json(request.content).samples]
        return httpx.Response(self.answer)

    def client(self) -> httpx.AsyncClient:
        handler: Callable[[httpx.Request], Any] = self
        return httpx.AsyncClient(base_url="https://api", transport=httpx.MockTransport(handler))


@pytest.mark.anyio
@pytest.mark.parametrize("trouble", [503, 404, httpx.ConnectError("away")])
async def test_samples_wait_for_an_api_that_is_away_and_go_once(trouble: int | Exception) -> None:
    api, outbox = Api(), Outbox(settings())
    api.answer = trouble
    async with api.client() as client:
        await outbox.send(client, samples(2))
        await outbox.send(client, samples(1, first=2))
        assert (len(outbox), api.taken) == (3, [])
        api.answer = 204
        await outbox.send(client, samples(1, first=3))
        await outbox.send(client, [])
    assert (len(outbox), api.taken) == (0, ["c0", "c1", "c2", "c3"])


@pytest.mark.anyio
async def test_the_oldest_samples_give_way_and_a_report_stays_within_its_bound() -> None:
    api, outbox = Api(), Outbox(settings())
    api.answer = 503
    async with api.client() as client:
        for first in range(0, MAX_SAMPLES + 2000, 2000):
            await outbox.send(client, samples(2000, first))
        assert len(outbox) == MAX_SAMPLES
        api.answer = 204
        await outbox.send(client, [])
    assert (api.taken[0], api.taken[-1], len(api.taken)) == ("c2000", "c11999", MAX_SAMPLES)


@pytest.mark.anyio
async def test_samples_that_the_api_calls_wrong_do_not_stand_in_the_way_of_others() -> None:
    api, outbox = Api(), Outbox(settings())
    api.answer = 422
    async with api.client() as client:
        await outbox.send(client, samples(1))
        api.answer = 204
        await outbox.send(client, samples(1, first=1))
    assert api.taken == ["c1"]
