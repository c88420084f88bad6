"""PyTorch where this Python has it: its limit in each way to allocate, and what the library costs a training."""

from __future__ import annotations

from importlib.util import find_spec

from tests.gpu.card import MIB, Card
from tests.gpu.memory_checks import LEFT_MIB, LIMIT
from tests.gpu.outcomes import Figure, NotJudged

MODES = {"native": "backend:native", "async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}
GROWN_MIB = 128.0
"""By so much its kernels, loaded when it first needs them, may add to its context (70 to 92 MiB on an H200). No call of
the program takes that: the agent charges it in its next rounds, and the kit has no agent."""
OVERHEAD = 3.0
"""Per cent by which a training step may be slower with the library."""
TRAINING_S = 8.0


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise NotJudged("this Python has no torch")


def pytorch_filled(card: Card) -> list[Figure]:
    """Out of memory comes at the limit in each way in which PyTorch allocates."""
    _need_torch()
    figures = []
    for mode, setting in MODES.items():
        given = {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
        environment = card.tenant(LIMIT).environment | given
        with card.watched() as most:
            found = card.run(environment, "fill", module="tests.gpu.training")
        figures += [
            Figure(f"{mode}: held at the refusal", found["held"] / MIB, "MiB", LIMIT / MIB - LEFT_MIB, bound="least"),
            Figure(
                f"{mode}: the most that NVML saw",
                round(most[0] / MIB),
                "MiB",
                LIMIT / MIB,
                GROWN_MIB,
                bound="most",
                note="the tolerance is what its kernels add to a context",
            ),
        ]
    return figures


def pytorch_overhead(card: Card) -> list[Figure]:
    """A training step on a whole card takes as long with the library as without."""
    _need_torch()
    seconds = str(1.0 if card.quick else TRAINING_S)
    rates = [
        card.run(environment, "train", seconds, module="tests.gpu.training")["steps_s"]
        for environment in (card.bare, card.tenant().environment) * 2
    ]
    without, with_it = max(rates[::2]), max(rates[1::2])
    return [
        Figure("without the library", round(without, 1), "steps/s"),
        Figure("slower with it", round(100 * (1 - with_it / without), 2), "%", OVERHEAD, bound="most"),
    ]
