"""Words for what pydantic finds wrong with a value, and for what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.sentence import Sentence

_MOMENT = Sentence("is no moment"), Sentence("write one such as 2026-11-30T08:00:00+09:00")
_FINDINGS = {
    "extra_forbidden": (Sentence("unknown key"), Sentence("remove the key, or correct its spelling")),
    "missing": (Sentence("this is required"), Sentence("add it")),
    "owned": ("", Sentence("remove the key")),
    "string_unicode": (Sentence("half of a surrogate pair is not text"), Sentence("write text")),
    "string_too_long": (Sentence("has more than {max_length} characters"), Sentence("write {max_length} at most")),
    "string_too_short": (Sentence("has fewer than {min_length} characters"), Sentence("write {min_length} at least")),
    "too_long": (Sentence("has more entries than {max_length}"), Sentence("give {max_length} at most")),
    "too_short": (Sentence("has fewer than {min_length} entries"), Sentence("give {min_length} at least")),
    "greater_than_equal": (Sentence("is less than {ge}"), Sentence("write {ge} or more")),
    "greater_than": (Sentence("is not more than {gt}"), Sentence("write more than {gt}")),
    "less_than_equal": (Sentence("is more than {le}"), Sentence("write {le} or less")),
    "less_than": (Sentence("is not less than {lt}"), Sentence("write less than {lt}")),
    "literal_error": (Sentence("is not {expected}"), ""),
    "enum": (Sentence("is not {expected}"), ""),
    "string_pattern_mismatch": (Sentence("does not match {pattern}"), ""),
    "string_type": (Sentence("is not text"), Sentence("write text")),
    "int_type": (Sentence("is not a whole number"), Sentence("write digits, without quotes")),
    "int_parsing": (Sentence("is not a whole number"), Sentence("write digits")),
    "int_from_float": (Sentence("is not a whole number"), Sentence("write digits")),
    "float_type": (Sentence("is not a number"), Sentence("write a number, without quotes")),
    "float_parsing": (Sentence("is not a number"), Sentence("write a number")),
    "bool_type": (Sentence("is neither true nor false"), Sentence("write true or false")),
    "bool_parsing": (Sentence("is neither true nor false"), Sentence("write true or false")),
    "list_type": (Sentence("is not a list"), ""),
    "dict_type": (Sentence("is not a mapping of keys to values"), ""),
    "model_type": (Sentence("is not a mapping of keys to values"), ""),
    "model_attributes_type": (Sentence("is not a mapping of keys to values"), ""),
    "ip_v4_address": (Sentence("is not an IPv4 address"), Sentence("write one such as 10.0.0.1")),
    "timezone_aware": (Sentence("has no time zone"), _MOMENT[1]),
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "uuid_parsing": (Sentence("is not an id"), ""),
}
"""Reason and hint by pydantic's kind of error; an empty one is pydantic's own, or the general hint."""


def reason(found: Mapping[str, Any]) -> str:
    """Return what is wrong with a value; `found` is one of `ValidationError.errors()`."""
    about = found.get("ctx", {})
    if about.get("min_length") == 1:
        return Sentence("is empty")
    # who writes a validator speaks our language already
    for said in (about.get("reason"), *getattr(about.get("error"), "args", ())):
        if isinstance(said, Sentence):
            return said
    return _filled(found, 0) or str(found["msg"]).removeprefix("Value error, ")


def hint(found: Mapping[str, Any]) -> str:
    """Return what to do about it; a validator of kind `hinted` knows that itself."""
    if found["type"] == "hinted":
        known: str = found["ctx"]["hint"]
        return known
    return _filled(found, 1) or Sentence("correct the value")


def _filled(found: Mapping[str, Any], which: int) -> str:
    limits = {name: f"{one:.15g}" if isinstance(one, float) else one for name, one in found.get("ctx", {}).items()}
    text = _FINDINGS.get(found["type"], ("", ""))[which]
    return Sentence(text, **limits) if text else ""
