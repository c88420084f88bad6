"""Words for what pydantic finds: every kind reads as ours, and says what to write."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from common import findings

MOMENT = "write one such as 2026-11-30T08:00:00+09:00"


def found(wanted: Any, value: object) -> ErrorDetails:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(wanted).validate_python(value)
    return caught.value.errors()[0]


@pytest.mark.parametrize(
    ("wanted", "value", "reason", "hint"),
    [
        (Annotated[str, Field(max_length=3)], "four", "has more than 3 characters", "write 3 at most"),
        (Annotated[str, Field(min_length=3)], "ab", "has fewer than 3 characters", "write 3 at least"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "has more entries than 1", "give 1 at most"),
        (Annotated[list[int], Field(min_length=2)], [1], "has fewer than 2 entries", "give 2 at least"),
        (Annotated[list[int], Field(min_length=1)], [], "is empty", "give 1 at least"),
        (Annotated[int, Field(ge=2)], 1, "is less than 2", "write 2 or more"),
        (Annotated[float, Field(gt=0)], 0, "is not more than 0", "write more than 0"),
        (Annotated[float, Field(le=0.5)], 1, "is more than 0.5", "write 0.5 or less"),
        (Annotated[float, Field(le=1_000_000.5)], 2e9, "is more than 1000000.5", "write 1000000.5 or less"),
        (Annotated[int, Field(lt=9)], 9, "is not less than 9", "write less than 9"),
        (Literal["off", "on"], "so", "is not 'off' or 'on'", "correct the value"),
        (Annotated[str, Field(pattern="^a$")], "b", "does not match ^a$", "correct the value"),
        (str, 1, "is not text", "write text"),
        (int, "many", "is not a whole number", "write digits"),
        (int, 1.5, "is not a whole number", "write digits"),
        (float, "much", "is not a number", "write a number"),
        (bool, "perhaps", "is neither true nor false", "write true or false"),
        (list[int], 1, "is not a list", "correct the value"),
        (dict[str, int], 1, "is not a mapping of keys to values", "correct the value"),
        (IPv4Address, "10.0.0.300", "is not an IPv4 address", "write one such as 10.0.0.1"),
        (UUID, "no", "is not an id", "correct the value"),
        (AwareDatetime, "2026-11-30T08:00:00", "has no time zone", MOMENT),
        (AwareDatetime, "soon", "is no moment", MOMENT),
        (AwareDatetime, "2026-11-30", "has no time zone", MOMENT),
        (AwareDatetime, [], "is no moment", MOMENT),
    ],
)
def test_a_finding_reads_as_our_own(wanted: Any, value: object, reason: str, hint: str) -> None:
    told = found(wanted, value)
    assert (findings.reason(told), findings.hint(told)) == (reason, hint)


def test_what_is_unknown_keeps_the_words_of_who_found_it() -> None:
    told = {"type": "value_error", "msg": "Value error, the name is taken", "ctx": {"error": ValueError()}}
    assert (findings.reason(told), findings.hint(told)) == ("the name is taken", "correct the value")


def test_every_kind_is_known() -> None:
    assert set(findings._FINDINGS) <= {*get_args(ErrorType), "ip_v4_address", "owned"}
