"""The inventory of a node with simulated GPUs; real ones are found in the integration tests."""

from __future__ import annotations

from pathlib import Path

from appliance.agent import inventory
from appliance.agent.settings import Settings

ENGINE = {"ServerVersion": "20.10.24", "OperatingSystem": "Debian GNU/Linux 12", "NCPU": 2, "MemTotal": 4 << 30}


def test_simulated_gpus_are_marked_and_keep_their_ids() -> None:
    settings = Settings(
        name="worker1",
        address="10.0.0.2",
        api_url="https://master1:56789",
        ca=Path("ca"),
        cert=Path("cert"),
        key=Path("key"),
        allowed=("master1",),
        simulated_gpus=4,
        simulated_gpu_model="Lab GPU",
        simulated_gpu_memory_mib=8192,
    )
    found = inventory.take(settings, ENGINE)
    assert (found.cpu_milli, found.memory_mib, found.engine_version) == (2000, 4096, "20.10.24")
    assert found.enforcement == "none"
    assert [gpu.uuid for gpu in found.gpus] == [f"SIM-worker1-{index}" for index in range(4)]
    assert all(gpu.simulated and gpu.model == "Lab GPU" and gpu.memory_mib == 8192 for gpu in found.gpus)
    assert inventory.take(settings, ENGINE) == found
