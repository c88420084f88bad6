"""The bases of messages between releases that may differ: what is asked for, and what is told.

Whoever sends a message leaves out what is at its default, and no default ever changes. So another release knows all of
it, as long as nobody asks for what is new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from common.strict import StrictModel

MAX_TEXT = 1 << 20
"""Most characters of any text of a message."""
MAX_REASON = 4096
"""Most characters of why something of a node is as it is."""
Brief = Annotated[str, Field(max_length=255)]
"""A name, a version, an address."""
Why = Annotated[str, Field(max_length=MAX_REASON)]
MAX_WORDS = 20_000


_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What neither UTF-8 nor PostgreSQL can have in a text."""


def as_told(most: int) -> BeforeValidator:
    """Mark a text of which whatever is in it is told: what no text can have is written out, and the rest of one that
    has more than `most` characters is left out.
    """

    def mended(value: object) -> object:
        if not isinstance(value, str):
            return value
        text = _NO_TEXT.sub(lambda found: found[0].encode("unicode_escape").decode(), value[: most + 1])
        return text if len(text) <= most else f"{text[: most - 1]}…"

    return BeforeValidator(mended)


Words = Annotated[str, as_told(MAX_WORDS), Field(max_length=MAX_WORDS)]
"""What programs have said, which is told in any case."""


@dataclass(frozen=True)
class Since:
    """Marks a field of what is asked for: who speaks an earlier protocol than this does not know it."""

    protocol: int


def is_of_later_release(value: object, kind: type[StrEnum]) -> bool:
    """Return whether a value is a word that only a later release has in an enumeration."""
    return isinstance(value, str) and value not in list(kind)


def else_read(instead: StrEnum) -> BeforeValidator:
    """Mark a value of what is told: a word that only a later release knows is read as another one."""
    return BeforeValidator(lambda value: instead if is_of_later_release(value, type(instead)) else value)


class Message(StrictModel):
    """Base of what is asked for: a key that is not known is refused, or the work would be done without it."""

    # with a length pydantic looks at each text, and refuses what UTF-8 cannot encode; what an error would quote goes
    # into logs, and may be a user's secret
    model_config = ConfigDict(str_max_length=MAX_TEXT, hide_input_in_errors=True)

    def written(self) -> str:
        """Return the message as it goes over the line."""
        return self.model_dump_json(exclude_defaults=True)


class Report(Message):
    """Base of what is told, and of answers: keys that a later release has added are passed over.

    So that values which it has added to an enumeration are read, too, each such field says as what (`else_read`).
    """

    model_config = ConfigDict(extra="ignore")


def protocol_of(asked: BaseModel) -> int:
    """Return the protocol that one has to speak to know all that is asked for."""
    return max((_protocol(getattr(asked, name), field) for name, field in type(asked).model_fields.items()), default=0)


def _protocol(value: object, field: FieldInfo) -> int:
    parts = value if isinstance(value, list) else [value]
    inner = (protocol_of(part) for part in parts if isinstance(part, BaseModel))
    needed = max([*(mark.protocol for mark in field.metadata if isinstance(mark, Since)), *inner], default=0)
    # last, as pydantic makes a default anew each time
    if needed and not field.is_required() and value == field.get_default(call_default_factory=True):
        return 0
    return needed
