"""PyTorch where this Python has it: its limit in each way to allocate, and what the library costs a training."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from statistics import median, quantiles

from tests.gpu.card import MIB, Card
from tests.gpu.memory_checks import LEFT_MIB, LIMIT
from tests.gpu.outcomes import Figure, NotJudged

MODES = {"native": "backend:native", "async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}
GROWN_MIB = 128.0
"""By so much its kernels, loaded when it first needs them, may add to its context (70 to 92 MiB on an H200). No call of
the program takes that: the agent charges it in its next rounds, and the kit has no agent."""
OVERHEAD = 3.0
"""Per cent by which a training step may be slower with the library."""
ROUND_S = 1.0
ROUNDS = 12
"""How often each of both trains, in turn; an even number, as they take turns in who begins."""


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
    """A training step on a whole card takes as long with the library as without.

    Two programs train in turn, a second each, so that clocks and neighbours of the processor touch both alike.
    """
    _need_torch()
    seconds, rounds = (0.2, 4) if card.quick else (ROUND_S, ROUNDS)
    bare, held = (
        card.start(environment, "train", str(seconds), module="tests.gpu.training")
        for environment in (card.bare, card.tenant().environment)
    )
    for program in (bare, held):
        program.line()
    rates: dict[object, list[float]] = {bare: [], held: []}
    for number in range(rounds):
        for program in (bare, held) if number % 2 else (held, bare):
            rates[program].append(program.ask()["steps_s"])
    return compared(rates[bare], rates[held])


def compared(without: Sequence[float], with_it: Sequence[float]) -> list[Figure]:
    """Return what the library costs by the steps a second in rounds that were beside each other, each with each."""
    slower = [100 * (1 - one / other) for other, one in zip(without, with_it, strict=True)]
    low, _, high = quantiles(slower, n=4)
    return [
        Figure("without the library", round(median(without), 1), "steps/s", note=f"median of {len(without)} rounds"),
        Figure("with it", round(median(with_it), 1), "steps/s", note=f"median of {len(with_it)} rounds"),
        Figure("slower with it", round(median(slower), 2), "%", OVERHEAD, bound="most", note="median of the rounds"),
        Figure("noise", round((high - low) / 2, 2), "%", note="half of the rounds lie within about ± this"),
    ]
