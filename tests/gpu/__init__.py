"""The kit that judges GPU shares on a real card: `make gpu-check-kit` packs it, `python3 check.py` there runs it.

It needs a driver and the standard library alone, and takes with it what it uses of the product.
"""

import enum
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - machines with a card often have an older Python than we develop with

    class _StrEnum(str, enum.Enum):  # noqa: UP042 - it is what is missing
        __str__ = str.__str__

    enum.StrEnum = _StrEnum
