"""Amounts as Kubernetes writes them: `500m`, `1.5`, `64Gi`, `1e3`. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from common.errors import InputError

_FORM = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_UNITS = {
    "": Decimal(1),
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("num", start=-3)},
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


def parse(text: str) -> Decimal:
    """Return an amount as a number: cores, bytes or pieces; raises InputError for what is none."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"{text!r} is no amount of Kubernetes", where="quantity", hint="look at the cluster's objects")
    number, exponent, unit = form.groups()
    return Decimal(number + (exponent or "")) * _UNITS[unit or ""]


def milli(text: str, *, up: bool = False) -> int:
    """Return cores as thousandths of a core, rounded down, or `up`."""
    return _whole(parse(text) * 1000, up=up)


def mib(text: str, *, up: bool = False) -> int:
    """Return bytes as MiB, rounded down, or `up`."""
    return _whole(parse(text) / 2**20, up=up)


def _whole(number: Decimal, *, up: bool) -> int:
    return int(number.to_integral_value(ROUND_CEILING if up else ROUND_FLOOR))
