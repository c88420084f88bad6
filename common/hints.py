"""Words for texts that people write: what a text may be, where it is not."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from common import findings
from common.sentence import Sentence

EXPLAINED = ("string_too_short", "string_too_long", "string_pattern_mismatch", "value_error")
"""Kinds of what pydantic finds of a text that are about what it says."""
_UNLIKE = Sentence("is not written as it has to be")


def hinted(hint: str, unlike: str = _UNLIKE) -> WrapValidator:
    """Return what says by a hint what a text may be where it is not, and how it is `unlike` its pattern.

    It stands after the pattern. Where pages show the text, both are sentences.
    """

    def explain(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            (found,) = error.errors(include_url=False, include_input=False)
            if found["type"] not in EXPLAINED:
                raise
            reason = unlike if found["type"] == "string_pattern_mismatch" else findings.reason(found)
            raise PydanticCustomError("hinted", "{reason}", {"reason": reason, "hint": hint}) from None

    return WrapValidator(explain)
