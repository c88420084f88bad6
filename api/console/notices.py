"""Notices: what everybody is told, now and later, and the form in which administrators write it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Form, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.console.texts import NAMES
from api.endpoints import notices
from api.endpoints.access import Caller, action
from api.endpoints.notices import BoardOf
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.notices.schemas import NoticeRequest
from api.tables.notices import Notice, NoticeLevel
from api.tables.users import Language

OTHERS = {language: name for language, name in NAMES.items() if language is not Language.ENGLISH}
"""The languages that have a text of their own; who reads another one is told the text that is for everybody."""

router = Router(prefix="/notices")
Line = Annotated[str, Field(max_length=4000)]


class NoticeForm(BaseModel):
    """A notice to write, with its texts for readers of some languages; moments are UTC, empty at once and for ever."""

    level: NoticeLevel = NoticeLevel.INFO
    text: Line = ""
    ko: Line = ""
    ja: Line = ""
    zh: Line = ""
    th: Line = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None


@router.get("")
@action(Action.NOTICE_MANAGE)
async def list_notices(request: Request, caller: Caller, db: Reading) -> Response:
    """Show what everybody is told and will be, and the form."""
    stamp = await pages.stamp(request, db, (*stamps.PEOPLE, Notice), caller.id)
    if answer := pages.unchanged(request, stamp):
        return answer
    values = {"written": await notices.list_notices(caller, db), "levels": NoticeLevel, "others": OTHERS}
    return await pages.live(request, "notices.html", "notices_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.NOTICE_MANAGE)
async def create_notice(form: Annotated[NoticeForm, Form()], caller: Caller, db: Transaction, board: BoardOf) -> None:
    """Tell everybody something."""
    await notices.create_notice(forms.checked(NoticeRequest, _body(form)), caller, db, board)


@router.post("/{notice_id}/end", status_code=204, dependencies=[REFRESH])
@action(Action.NOTICE_MANAGE)
async def end_notice(notice_id: UUID, db: Transaction, board: BoardOf) -> None:
    """Withdraw a notice: nobody is told it any more."""
    await notices.end_notice(notice_id, db, board)


def _body(form: NoticeForm) -> dict[str, Any]:
    """Return the body of the API's request."""
    texts = {language: getattr(form, language.value) for language in OTHERS}
    return {
        "level": form.level,
        "text": form.text,
        "texts": {language.value: text for language, text in texts.items() if text.strip()},
        "starts_at": _utc(form.starts_at),
        "ends_at": _utc(form.ends_at),
    }


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
