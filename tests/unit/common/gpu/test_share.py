"""GPU shares: text, integers, the site's granularity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from common.errors import InputError
from common.gpu.share import MAX_GPUS, MILLI, GpuShare, Granularity, check_share, divide, memory_limit
from common.gpu.units import format_gpus, parse_gpus
from common.protocol import GpuShares


@pytest.mark.parametrize(
    ("text", "milli"), [("1", 1000), ("0.5", 500), ("2.5", 2500), (".2", 200), ("0", 0), ("-1", -1000), ("1e1", 10000)]
)
def test_decimal_numbers_of_gpus_become_milli_gpu(text: str, milli: int) -> None:
    assert parse_gpus(text) == milli


@pytest.mark.parametrize(
    "text", ["", "half", "0,5", "1/2", "NaN", "Infinity", "1e9999999", "1e5000", "0.0005", "1.2345"]
)
def test_other_text_is_refused_with_field_and_hint(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gpus(text, "-g")
    [problem] = caught.value.problems
    assert problem.where == "-g"
    assert problem.hint


@given(st.integers(min_value=-(10**7), max_value=10**7))
def test_text_and_integer_are_each_other_s_inverse(milli: int) -> None:
    assert parse_gpus(format_gpus(milli)) == milli


@pytest.mark.parametrize(("milli", "text"), [(500, "0.5"), (1000, "1"), (10000, "10"), (16000, "16"), (125, "0.125")])
def test_gpus_are_written_without_needless_zeros(milli: int, text: str) -> None:
    assert format_gpus(milli) == text


def test_the_reference_s_splits() -> None:
    fifths = Granularity(fgpu_per_gpu=5, steps_per_fgpu=1)
    assert (fifths.fgpu_milli, fifths.step_milli) == (200, 200)
    halves = Granularity(fgpu_per_gpu=2, steps_per_fgpu=10)
    assert (halves.fgpu_milli, halves.step_milli) == (500, 50)


@pytest.mark.parametrize(("per_gpu", "steps"), [(3, 1), (2, 7), (7, 7)])
def test_a_split_that_leaves_a_rest_is_refused(per_gpu: int, steps: int) -> None:
    with pytest.raises(ValidationError, match="do not divide 1000 milli-GPU"):
        Granularity(fgpu_per_gpu=per_gpu, steps_per_fgpu=steps)


@pytest.mark.parametrize(
    ("milli", "reason", "hint"),
    [
        (0, "not above 0", "at least 0.05 GPU"),
        (-500, "not above 0", "at least 0.05 GPU"),
        (330, "finer than the granularity", "0.3 or 0.35 GPU"),
        (20, "finer than the granularity", "0.05 GPU"),
        ((MAX_GPUS + 1) * MILLI, "more than a container may hold", "at most 16"),
    ],
)
def test_shares_that_cannot_be(milli: int, reason: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check_share(milli, Granularity())
    [problem] = caught.value.problems
    assert problem.where == "gpu_milli"
    assert reason in problem.reason
    assert hint in problem.hint


@pytest.mark.parametrize("milli", [50, 500, 1000, 2500, MAX_GPUS * MILLI])
def test_shares_that_can_be(milli: int) -> None:
    check_share(milli, Granularity())


@pytest.mark.parametrize(
    ("memory_mib", "milli", "limit"), [(8192, 250, 2048), (32510, 500, 16255), (16384, 1000, 16384), (1001, 1, 1)]
)
def test_the_memory_of_a_share_is_its_part_of_the_gpus_memory_in_whole_mib(
    memory_mib: int, milli: int, limit: int
) -> None:
    assert memory_limit(memory_mib, milli) == limit


@given(memory_mib=st.integers(1, 1 << 20), shares=st.lists(st.integers(1, MILLI), min_size=1, max_size=20))
def test_limits_of_shares_that_fit_on_a_gpu_fit_into_its_memory(memory_mib: int, shares: list[int]) -> None:
    fitting = shares if sum(shares) <= MILLI else [share * MILLI // sum(shares) for share in shares]
    assert sum(memory_limit(memory_mib, share) for share in fitting) <= memory_mib


def test_two_and_a_half_gpus_are_two_whole_ones_and_a_half() -> None:
    assert divide(2500) == [1000, 1000, 500]
    assert divide(2000) == [1000, 1000]
    assert divide(125) == [125]


@pytest.mark.parametrize(
    "wrong", [{"index": -1}, {"milli": 0}, {"milli": 1001}, {"milli": "half"}, {"uuid": None}, {"weight": 1}], ids=str
)
def test_a_message_refuses_what_is_no_share(wrong: dict[str, object]) -> None:
    share = {"uuid": "GPU-1", "index": 0, "milli": 500}
    message = GpuShares.model_validate({"gpus": [share]})
    assert message.gpus == [GpuShare("GPU-1", 0, 500)]
    assert message.model_dump() == {"gpus": [share]}
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        GpuShares.model_validate({"gpus": [share | wrong]})
