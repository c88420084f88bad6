"""Words for what pydantic finds wrong with a value, and for what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FINDINGS = {
    "extra_forbidden": ("unknown key", "remove the key, or correct its spelling"),
    "missing": ("this is required", "add it"),
    "owned": ("", "remove the key"),
    "string_unicode": ("half of a surrogate pair is not text", "write text"),
    "string_too_long": ("has more than {max_length} characters", "write {max_length} at most"),
    "string_too_short": ("has fewer than {min_length} characters", "write {min_length} at least"),
    "too_long": ("has more entries than {max_length}", "give {max_length} at most"),
    "too_short": ("has fewer than {min_length} entries", "give {min_length} at least"),
    "greater_than_equal": ("is less than {ge}", "write {ge} or more"),
    "greater_than": ("is not more than {gt}", "write more than {gt}"),
    "less_than_equal": ("is more than {le}", "write {le} or less"),
    "less_than": ("is not less than {lt}", "write less than {lt}"),
    "literal_error": ("is not {expected}", ""),
    "enum": ("is not {expected}", ""),
    "string_pattern_mismatch": ("does not match {pattern}", ""),
    "string_type": ("is not text", "write text"),
    "int_type": ("is not a whole number", "write digits"),
    "int_parsing": ("is not a whole number", "write digits"),
    "int_from_float": ("is not a whole number", "write digits"),
    "float_type": ("is not a number", "write a number"),
    "float_parsing": ("is not a number", "write a number"),
    "bool_type": ("is neither true nor false", "write true or false"),
    "bool_parsing": ("is neither true nor false", "write true or false"),
    "list_type": ("is not a list", ""),
    "dict_type": ("is not a mapping of keys to values", ""),
    "model_type": ("is not a mapping of keys to values", ""),
    "model_attributes_type": ("is not a mapping of keys to values", ""),
    "ip_v4_address": ("is not an IPv4 address", "write one such as 10.0.0.1"),
    "uuid_parsing": ("is not an id", ""),
}
"""Reason and hint by pydantic's kind of error; an empty one is pydantic's own, or the general hint."""


def reason(found: Mapping[str, Any]) -> str:
    """Return what is wrong with a value; `found` is one of `ValidationError.errors()`."""
    if found.get("ctx", {}).get("min_length") == 1:
        return "is empty"
    # who writes a validator speaks our language already
    return _filled(found, 0) or str(found["msg"]).removeprefix("Value error, ")


def hint(found: Mapping[str, Any]) -> str:
    """Return what to do about it; a validator of kind `hinted` knows that itself."""
    if found["type"] == "hinted":
        return str(found["ctx"]["hint"])
    return _filled(found, 1) or "correct the value"


def _filled(found: Mapping[str, Any], which: int) -> str:
    limits = {name: f"{one:.15g}" if isinstance(one, float) else one for name, one in found.get("ctx", {}).items()}
    return _FINDINGS.get(found["type"], ("", ""))[which].format(**limits)
