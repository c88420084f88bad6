"""Reports of what containers use of their GPUs: samples that are kept while the control API is away."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import structlog
from anyio import to_thread

from appliance.agent.settings import Settings
from appliance.agent.shares.gpu_readings import GpuReadings, Reading
from appliance.agent.shares.share_manager import ShareManager
from appliance.agent.tls import api_client
from appliance.gpu.layout import Total
from appliance.gpu.preload import Preload
from common.errors import PenstockError
from common.gpu.kinds import Compute
from common.protocol import METRICS_PATH, GpuMetrics, MetricsReport

log = structlog.get_logger()

MAX_SAMPLES = 10_000
"""Samples that wait for an API that is away; older ones are dropped."""
_REFUSED = (400, 413, 422)


class Sampler:
    """Takes samples; each tells how busy a container was since the one before."""

    def __init__(self, shares: ShareManager, readings: GpuReadings, preload: Preload) -> None:
        """Start without a sample before."""
        self._shares = shares
        self._readings = readings
        self._preload = preload
        self._busy_ns: dict[tuple[str, str], int] = {}
        self._taken_ns = time.monotonic_ns()
        self._taken_us = time.time_ns() // 1000

    def take(self, sessions: dict[str, str]) -> list[GpuMetrics]:
        """Return a sample for each container and GPU; `sessions` leads from running containers to their sessions.

        It may block.
        """
        now_ns, now_us, at = time.monotonic_ns(), time.time_ns() // 1000, datetime.now(UTC)
        readings = self._readings.memory()
        by_nvml: dict[str, dict[str, int] | None] = {}
        busy_ns: dict[tuple[str, str], int] = {}
        samples = []
        for identity, session in sessions.items():
            totals = self._totals(identity)
            for share in self._shares.shares_of(identity):
                uuid, total = share.device.uuid, totals.get(share.device.uuid)
                reading = readings.get(identity, {}).get(uuid)
                if share.device.simulated or (reading is None and total is None):
                    continue
                busy = None
                if total is not None and not share.is_whole and self._preload.compute is not Compute.OFF:
                    busy_ns[identity, uuid] = total.busy_ns
                    busy = self._permille(identity, uuid, total, now_ns)
                else:
                    if uuid not in by_nvml:
                        by_nvml[uuid] = self._readings.busy(uuid, self._taken_us)
                    known = by_nvml[uuid]
                    busy = known.get(identity, 0) if known is not None else None
                # without NVML what the container was charged is the best that is known
                used = reading or Reading(total.used_bytes if total else 0)
                samples.append(
                    GpuMetrics(
                        container_id=identity,
                        session_id=session,
                        uuid=uuid,
                        at=at,
                        memory_mib=used.memory_bytes >> 20,
                        busy_permille=busy,
                        processes=used.processes,
                    )
                )
        self._busy_ns, self._taken_ns, self._taken_us = busy_ns, now_ns, now_us
        return samples

    def _permille(self, identity: str, uuid: str, total: Total, now_ns: int) -> int | None:
        before = self._busy_ns.get((identity, uuid))
        if before is None or now_ns <= self._taken_ns:
            return None
        # the container may write its account: what it says is kept within what can be
        return min(max(total.busy_ns - before, 0) * 1000 // (now_ns - self._taken_ns), 1000)

    def _totals(self, identity: str) -> dict[str, Total]:
        try:
            return self._preload.totals(identity) if self._preload.has(identity) else {}
        except PenstockError:
            return {}


class Outbox:
    """Samples that the control API has not taken yet."""

    def __init__(self, settings: Settings) -> None:
        """Start empty."""
        self._settings = settings
        self._samples: deque[GpuMetrics] = deque(maxlen=MAX_SAMPLES)
        self._failing = False

    def __len__(self) -> int:
        """Return how many samples wait."""
        return len(self._samples)

    async def send(self, client: httpx.AsyncClient, samples: list[GpuMetrics]) -> None:
        """Post new samples and those that wait; what the API does not take now waits for the next time."""
        self._samples.extend(samples)
        if not self._samples:
            return
        report = MetricsReport(name=self._settings.name, samples=list(self._samples))
        try:
            answer = await client.post(
                METRICS_PATH, content=report.written(), headers={"Content-Type": "application/json"}
            )
            if answer.status_code in _REFUSED:
                log.warning("the control API refuses samples; they are dropped", status=answer.status_code)
            else:
                answer.raise_for_status()
        except httpx.HTTPError as error:
            if not self._failing:
                log.warning("the control API does not take samples", reason=str(error), waiting=len(self._samples))
            self._failing = True
            return
        self._failing = False
        self._samples.clear()

    async def run(self, sampler: Sampler, sessions: Callable[[], dict[str, str]]) -> None:
        """Take and send samples for ever; `sessions` leads from the containers that run now to their sessions."""
        async with api_client(self._settings) as client:
            while True:
                await asyncio.sleep(self._settings.metrics_interval_s)
                await self.send(client, await to_thread.run_sync(sampler.take, sessions()))
