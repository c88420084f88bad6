"""What NVML is asked again and again, and what is said of it when it does not answer."""

from __future__ import annotations

import pynvml
import pytest
from structlog.testing import capture_logs

from appliance.gpu.telemetry import Telemetry


class Driver:
    """NVML of two GPUs without processes; `errors` has those that do not answer, by their ids."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, int] = {}
        self.begun = 0
        monkeypatch.setattr(pynvml, "nvmlInit", self._begin)
        monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
        for kind in ("Compute", "Graphics"):
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v3", self._processes)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", lambda uuid, since: [])

    def _begin(self) -> None:
        self.begun += 1

    def _processes(self, uuid: str) -> list[object]:
        if uuid in self.errors:
            raise pynvml.NVMLError(self.errors[uuid])
        return []


def test_a_lost_gpu_is_said_once_and_disturbs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, telemetry = Driver(monkeypatch), Telemetry()
    driver.errors["GPU-1"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with capture_logs() as lines:
        for _ in range(5):
            assert telemetry.memory("GPU-1") is None
            assert telemetry.memory("GPU-2") == {}
            assert telemetry.busy("GPU-1", 0) == {}
    assert [(line["log_level"], line["gpu"]) for line in lines] == [("warning", "GPU-1")]
    assert driver.begun == 1
    driver.errors.clear()
    with capture_logs() as lines:
        assert telemetry.memory("GPU-1") == {}
        assert telemetry.memory("GPU-1") == {}
    assert [(line["log_level"], line["gpu"]) for line in lines] == [("info", "GPU-1")]


@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_UNKNOWN]
)
def test_a_driver_that_was_away_is_asked_in_a_new_session(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    driver, telemetry = Driver(monkeypatch), Telemetry()
    driver.errors["GPU-1"] = error
    assert telemetry.memory("GPU-1") is None
    driver.errors.clear()
    assert telemetry.memory("GPU-1") == {}
    assert driver.begun == 2


def test_what_a_gpu_cannot_tell_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, telemetry = Driver(monkeypatch), Telemetry()
    driver.errors["GPU-1"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    with capture_logs() as lines:
        assert telemetry.memory("GPU-1") is None
    assert lines == []
