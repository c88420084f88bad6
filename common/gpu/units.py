"""GPU shares as text: 1,000 milli-GPU are one GPU. Light to import, because the command line starts with it."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from common.errors import InputError

MILLI = 1000
_BEYOND = 10**12


def parse_gpus(text: str, field: str = "gpus") -> int:
    """Return the milli-GPU of a number of GPUs written in decimal, such as `0.5`; raises InputError."""
    try:
        milli = Decimal(text) * MILLI
        # what has no end, or is beyond what anybody counts, is no number of GPUs either
        if abs(milli) >= _BEYOND:
            raise InvalidOperation
    except ArithmeticError:
        raise InputError(
            f"{text!r} is not a number of GPUs", where=field, hint="write a decimal number, such as 0.5 or 2"
        ) from None
    if milli != int(milli):
        raise InputError(
            f"{text} GPU is finer than a thousandth of a GPU",
            where=field,
            hint="use at most three decimal places",
        )
    return int(milli)


def format_gpus(milli: int) -> str:
    """Return milli-GPU as a decimal number of GPUs without needless zeros: 500 is `0.5`."""
    return f"{Decimal(milli) / MILLI:f}"
