"""Amounts as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from appliance.agent.kubernetes import quantity
from common.errors import InputError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("4", "4"),
        ("1.5", "1.5"),
        ("500m", "0.5"),
        ("100u", "0.0001"),
        ("7n", "0.000000007"),
        ("2k", "2000"),
        ("3M", "3000000"),
        ("1Ki", "1024"),
        ("64Gi", str(64 << 30)),
        ("1e3", "1000"),
        ("12E6", "12000000"),
        ("1E", str(10**18)),
    ],
)
def test_every_form_of_an_amount_is_read(text: str, number: str) -> None:
    assert quantity.parse(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "many", "4 Gi", "1Gb", "-"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no amount of Kubernetes"):
        quantity.parse(text)


def test_what_is_there_is_rounded_down_and_what_is_asked_for_up() -> None:
    assert (quantity.milli("1.0005"), quantity.milli("1.0005", up=True)) == (1000, 1001)
    assert (quantity.mib("1500Ki"), quantity.mib("1500Ki", up=True)) == (1, 2)
