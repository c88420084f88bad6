"""The health of GPUs, asked of a library that behaves like NVIDIA's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.fakes.cuda import build

LOOK = """
import dataclasses, json
from appliance.gpu import health
from appliance.gpu.telemetry import Telemetry
from tests.fakes.cuda.clients import gpu_uuid
telemetry = Telemetry()
print(json.dumps([dataclasses.asdict(health.look(telemetry, gpu_uuid(index))) for index in range(2)]))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("libraries"))


def look(libraries: Path, path: Path, *lines: str) -> list[dict[str, Any]]:
    path.write_text("".join(f"{line}\n" for line in lines))
    machine = {"FAKE_GPU_COUNT": "2", "FAKE_GPU_HEALTH": str(path), "LD_LIBRARY_PATH": str(libraries)}
    found = forks.run([sys.executable, "-c", LOOK], {"PATH": os.environ["PATH"], **machine})
    assert found.returncode == 0, found.stderr
    told: list[dict[str, Any]] = json.loads(found.stdout)
    return told


def test_what_a_gpu_tells_is_read(libraries: Path, tmp_path: Path) -> None:
    first, second = look(
        libraries,
        tmp_path / "health",
        *("0 temperature 91", "0 uncorrected 2", "0 remapped 1", "0 pending 1", "0 slowed 64"),
        *("0 links 3", "0 all_links 4", "1 temperature 40"),
    )
    assert first == {
        "silent": "",
        "bus": "00000000:01:00.0",
        "temperature_c": 91,
        "uncorrected": 2,
        "needs_reset": True,
        "needs_replacement": False,
        "slowed": ["it is too hot"],
        "links": 3,
        "all_links": 4,
    }
    assert (second["temperature_c"], second["uncorrected"], second["all_links"]) == (40, None, 0)


def test_one_that_is_lost_disturbs_no_other(libraries: Path, tmp_path: Path) -> None:
    first, second = look(libraries, tmp_path / "health", "0 lost 1", "0 temperature 50", "1 temperature 50")
    assert first["silent"] == "it has fallen off the bus"
    assert (second["silent"], second["temperature_c"]) == ("", 50)
