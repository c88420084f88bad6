"""Costs of what was held, by the prices of now whatever the period: exact until they are rounded for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Self

from common.settings.control_api import ControlApiSettings

EXACT = Context(prec=60)
"""More digits than any sum has."""
MILLI_HOUR = 1000 * 3600


@dataclass(frozen=True)
class Held:
    """What was held for some time: sums of seconds, and of these multiplied by milli-GPU, milli-cores and MiB.

    `models` leads from models to the milli-GPU that were held of them all the time; None where nobody knows.
    """

    models: Mapping[str, int] | None
    seconds: Decimal
    gpu_milli_seconds: Decimal
    cpu_milli_seconds: Decimal
    memory_mib_seconds: Decimal


@dataclass(frozen=True)
class Prices:
    """What an hour costs: of a whole GPU, of one of some models, of a core, and of a GiB of memory."""

    currency: str
    gpu: Decimal
    gpu_of: Mapping[str, Decimal]
    core: Decimal
    gib: Decimal

    @classmethod
    def of(cls, settings: ControlApiSettings) -> Self | None:
        """Return the site's prices, None where it has none."""
        if settings.price_currency is None:
            return None
        of_gpus = settings.price_gpu_hour, settings.price_gpu_hour_of
        return cls(settings.price_currency, *of_gpus, settings.price_core_hour, settings.price_gib_hour)

    def weighted(self, held: Held) -> Decimal:
        """Return what something costs, times `MILLI_HOUR * 1024`: so it has an end, and sums of it are exact."""
        if held.models is None:
            gpus = EXACT.multiply(held.gpu_milli_seconds, self.gpu)
        else:
            of_models = (milli * self.gpu_of.get(model, self.gpu) for model, milli in held.models.items())
            gpus = EXACT.multiply(held.seconds, sum(of_models, Decimal(0)))
        cores = EXACT.multiply(held.cpu_milli_seconds, self.core)
        memory = EXACT.multiply(held.memory_mib_seconds, self.gib)
        whole = EXACT.multiply(EXACT.add(gpus, cores), Decimal(1024))
        return EXACT.add(whole, EXACT.multiply(memory, Decimal(1000)))

    @staticmethod
    def rounded(weighted: Decimal) -> Decimal:
        """Return a sum of what `weighted` returns as money, half a hundredth upwards."""
        return EXACT.divide(weighted, Decimal(MILLI_HOUR * 1024)).quantize(Decimal("0.01"), ROUND_HALF_UP, EXACT)
