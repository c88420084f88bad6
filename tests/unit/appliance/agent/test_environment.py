"""What every runtime tells the programs of a session."""

from __future__ import annotations

import pytest

from appliance.agent import environment
from tests.unit.appliance.agent.samples import gpu_share, make


def test_programs_are_told_whose_session_they_are_in_and_with_which_gpus() -> None:
    assert environment.identity(make(gpus=[gpu_share("SIM-1", 500), gpu_share("GPU-real", 1000)])) == {
        "PENSTOCK_SESSION": "train",
        "PENSTOCK_PROJECT": "team-a",
        "PENSTOCK_GPUS": "SIM-1,GPU-real",
        "PENSTOCK_GPU_SHARE": "500,1000",
    }


@pytest.mark.parametrize(("milli", "number"), [(1, 1), (500, 1), (1000, 1), (1001, 2), (2000, 2), (3500, 4)])
def test_numerical_libraries_start_as_many_threads_as_cores_are_begun(milli: int, number: int) -> None:
    assert set(environment.threads(milli).values()) == {str(number)}


def test_without_a_limit_numerical_libraries_decide() -> None:
    assert environment.threads(0) == {}
