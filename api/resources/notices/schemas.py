"""Bodies of the endpoints of notices."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from api.resources.schemas import Moment, Request, Text, View
from api.tables.notices import NoticeLevel
from api.tables.users import Language
from common.sentence import Sentence


def _not_blank(words: str) -> str:
    if not words.strip():
        raise ValueError(Sentence("nobody can read blanks; write what to tell"))
    return words


Words = Annotated[Text, Field(min_length=1, max_length=1000), AfterValidator(_not_blank)]


class NoticeRequest(Request):
    """What to tell everybody: `text`, or where the reader's language has one, that of `texts`.

    It is told from `starts_at` on (null: at once) up to `ends_at` (null: until it is ended).
    """

    level: NoticeLevel = NoticeLevel.INFO
    text: Words
    texts: dict[Language, Words] = Field(default_factory=dict)
    starts_at: Moment | None = None
    ends_at: Moment | None = None

    @field_validator("ends_at")
    @classmethod
    def _in_order(cls, value: datetime | None, about: ValidationInfo) -> datetime | None:
        starts_at = about.data.get("starts_at")
        if value and starts_at and not starts_at < value:
            told = {"reason": Sentence("it would end before it begins"), "hint": Sentence("write a later end")}
            raise PydanticCustomError("hinted", "{reason}", told)
        return value


class NoticeView(View):
    """What everybody is told while it is in force; `texts` are for readers of these languages."""

    id: UUID
    level: NoticeLevel
    text: str
    texts: dict[Language, str]
    starts_at: datetime
    ends_at: datetime | None
