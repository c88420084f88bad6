"""Which containers a node runs beside those that it runs already."""

from __future__ import annotations

import pytest

from appliance.agent import admission
from common.errors import ConflictError, InputError
from common.protocol import ContainerSpec, ContainerState, ContainerStatus
from tests.unit.appliance.agent.samples import DEVICES, gpu_share, held, make


def check(spec: ContainerSpec, *others: ContainerState) -> None:
    admission.check(spec, DEVICES, others)


def problem_of(spec: ContainerSpec, *others: ContainerState) -> tuple[str, str]:
    with pytest.raises((InputError, ConflictError)) as caught:
        check(spec, *others)
    [problem] = caught.value.problems
    return problem.where, problem.reason


def test_a_gpu_takes_shares_up_to_one_and_ended_containers_hold_none() -> None:
    spec = make(gpus=[gpu_share("SIM-1", 500)])
    check(spec, held(500))
    check(spec, held(1000, ContainerStatus.EXITED), held(1000, ContainerStatus.FAILED))
    check(spec, held(1000, uuid="GPU-real"))
    assert problem_of(spec, held(500), held(100))[0] == "gpus.0"


def test_a_mig_device_goes_to_one_container_whatever_its_share_says() -> None:
    check(make(gpus=[gpu_share("MIG-1", 100)]))
    assert problem_of(make(gpus=[gpu_share("MIG-1", 100)]), held(100, uuid="MIG-1"))[0] == "gpus.0"


def test_the_hundred_and_first_container_is_refused() -> None:
    others = [held(1).model_copy(update={"gpus": []})] * admission.MAX_CONTAINERS
    check(make(), *others[1:])
    assert "100 containers" in problem_of(make(), *others)[1]
    check(make(), *others[1:], held(1, ContainerStatus.EXITED))


@pytest.mark.parametrize("image", ["5", "sha256:5f", "12ab" * 16])
def test_what_could_be_the_id_of_an_image_is_no_name_of_one(image: str) -> None:
    assert problem_of(make(image=image)) == (
        "image",
        f"{image} could be the id of an image, and images go by their names",
    )


def test_unknown_and_doubled_gpus_are_refused() -> None:
    assert problem_of(make(gpus=[gpu_share("GPU-else", 500)])) == ("gpus.0.uuid", "this node has no GPU GPU-else")
    assert problem_of(make(gpus=[gpu_share("SIM-1", 500), gpu_share("SIM-1", 100)])) == (
        "gpus",
        "a GPU is given twice",
    )


def test_only_a_container_that_runs_can_be_given_other_shares() -> None:
    admission.check_runs(held(500), 7)
    for state, pid in ((held(500, ContainerStatus.EXITED), 7), (held(500), 0)):
        with pytest.raises(ConflictError, match="does not run"):
            admission.check_runs(state, pid)
