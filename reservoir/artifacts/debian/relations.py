"""Relations of Debian packages to others, as far as apt reads them: one that it does not makes an index useless."""

from __future__ import annotations

import re

FIELDS = {
    "depends", "pre-depends", "recommends", "suggests", "enhances", "breaks", "conflicts", "replaces", "provides",
}  # fmt: skip
# apt takes an empty field of the others as if it was not there
NEVER_EMPTY = {"provides"}
_BLANKS = r"[ \t\n\r\f\v]*"
_NAME = r"[^ \t\n\r\f\v(),|\[\]<>]+"
# a version without an operator is one that must be equal
_VERSION = rf"\({_BLANKS}(?>(?:<<|>>|[<>]=?|!?=)?){_BLANKS}[^)\s][^)]*\)"
_ONE = rf"{_BLANKS}{_NAME}{_BLANKS}(?:{_VERSION}{_BLANKS})?"
# sources alone say for which machines and builds a relation counts; a comma at the end is borne
_LIST = re.compile(rf"{_ONE}(?:[,|]{_ONE})*(?:,{_BLANKS})?")
# apt wants more than three signs behind a bracket
_SHORT = re.compile(rf"\({_BLANKS}[^(]{{0,3}}\Z")


def readable(field: str, value: str) -> bool:
    """Say whether apt can read the value of a field, which is written in small letters."""
    if field not in FIELDS or (not value.strip() and field not in NEVER_EMPTY):
        return True
    return _LIST.fullmatch(value) is not None and not _SHORT.search(value.rstrip())
