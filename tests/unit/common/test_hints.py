"""Words for texts that people write."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from common import findings
from common.hints import hinted

WORD = Annotated[str, Field(pattern="^[a-z]+$", max_length=3), hinted("write three small letters", "is no word")]


@pytest.mark.parametrize(
    ("value", "reason", "hint"),
    [
        ("A", "is no word", "write three small letters"),
        ("abcd", "has more than 3 characters", "write three small letters"),
        (7, "is not text", "write text"),
    ],
)
def test_a_text_says_what_it_may_be_and_never_its_pattern(value: object, reason: str, hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(WORD).validate_python(value)
    (found,) = caught.value.errors()
    assert (findings.reason(found), findings.hint(found)) == (reason, hint)


def test_a_text_that_fits_is_as_it_was() -> None:
    assert TypeAdapter(WORD).validate_python("abc") == "abc"
