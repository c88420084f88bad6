"""Limits of memory on a card: what a program sees, where it ends, what a killed one leaves, and another limit."""

from __future__ import annotations

from tests.gpu.card import MIB, Card
from tests.gpu.outcomes import Figure

LIMIT = 4096 * MIB
LEFT_MIB = 1024
"""So much of a limit may stay unused when the driver refuses: the context, and less than a block."""
OUT_OF_MEMORY = 2


def ends_at(found: dict[str, int], limit_mib: float, left_mib: float = LEFT_MIB) -> list[Figure]:
    """Return figures of a program that filled the card up to a limit."""
    return [
        Figure("held at the refusal", found["held"] / MIB, "MiB", limit_mib, bound="most"),
        Figure("it is near the limit", found["held"] / MIB, "MiB", limit_mib - left_mib, bound="least"),
        Figure("the refusal", found["code"], wanted=OUT_OF_MEMORY, note="2 is out of memory"),
    ]


def shown(card: Card) -> list[Figure]:
    """A program sees its limit as the card's memory."""
    found = card.run(card.tenant(LIMIT).environment, "show")
    return [
        Figure("total", found["total"] / MIB, "MiB", wanted=LIMIT / MIB),
        Figure("free", found["free"] / MIB, "MiB", wanted=LIMIT / MIB, bound="most"),
    ]


def filled(card: Card) -> list[Figure]:
    """Out of memory comes at the limit in each way to allocate, and the host never sees more in use."""
    figures = []
    for how in ("plain", "async", "virtual"):
        with card.watched() as most:
            found = card.run(card.tenant(LIMIT).environment, "fill", how)
        figures += [
            Figure(f"{how}: held at the refusal", found["held"] / MIB, "MiB", (LIMIT / MIB) - LEFT_MIB, bound="least"),
            Figure(f"{how}: the refusal", found["code"], wanted=OUT_OF_MEMORY, note="2 is out of memory"),
            Figure(f"{how}: the most that NVML saw", round(most[0] / MIB), "MiB", wanted=LIMIT / MIB, bound="most"),
        ]
    return figures


def killed(card: Card) -> list[Figure]:
    """What a killed process held is free for the next one of its container."""
    half = LIMIT // 2
    tenant = card.tenant(LIMIT)
    first = card.start(tenant.environment, "blocks", "1", str(half))
    first.line()
    refused = first.ask()["refused"]
    first.kill()
    found = card.run(tenant.environment, "fill", "plain")
    return [
        Figure("refused to the first", refused, wanted=0),
        Figure("held by the next", found["held"] / MIB, "MiB", wanted=half / MIB + 1, bound="least"),
    ]


def resized(card: Card) -> list[Figure]:
    """Another limit holds from the next call on, in the program that runs."""
    tenant = card.tenant(LIMIT)
    program = card.start(tenant.environment, "show")
    figures = [Figure("total at first", program.line()["total"] / MIB, "MiB", wanted=LIMIT / MIB)]
    for limit in (LIMIT // 2, LIMIT + 512 * MIB):
        tenant.change(limit, 1000)
        figures.append(Figure("total afterwards", program.ask()["total"] / MIB, "MiB", wanted=limit / MIB))
    return figures
