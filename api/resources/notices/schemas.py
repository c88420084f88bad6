"""Bodies of the endpoints of notices."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator

from api.resources.schemas import Moment, Request, Text, View
from api.tables.notices import NoticeLevel
from api.tables.users import Language


def _not_blank(words: str) -> str:
    if not words.strip():
        raise ValueError("nobody can read blanks; write what to tell")
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

    @model_validator(mode="after")
    def _in_order(self) -> NoticeRequest:
        if self.starts_at and self.ends_at and not self.starts_at < self.ends_at:
            raise ValueError("ends_at is not after starts_at; write a later end")
        return self


class NoticeView(View):
    """What everybody is told while it is in force; `texts` are for readers of these languages."""

    id: UUID
    level: NoticeLevel
    text: str
    texts: dict[Language, str]
    starts_at: datetime
    ends_at: datetime | None
