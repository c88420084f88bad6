"""Endpoints of notices. Everybody reads them; administrators of the site write and end them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends
from starlette.requests import HTTPConnection

from api.auth.policy import Action
from api.clock import now
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.notices import service
from api.resources.notices.schemas import NoticeRequest, NoticeView
from api.resources.notices.service import Board
from api.resources.schemas import Done

router = Router(prefix="/notices", tags=["notices"])


async def board_of(connection: HTTPConnection) -> Board:
    """Return what the application remembers of notices."""
    board: Board = connection.app.state.notice_board
    return board


BoardOf = Annotated[Board, Depends(board_of)]


@router.get("")
@action(Action.NOTICE_READ)
async def list_notices(caller: Caller, db: Reading) -> list[NoticeView]:
    """List what everybody is told now, and for those who write it what will be told, too."""
    return await service.listed(db, now(), coming=caller.allows(Action.NOTICE_MANAGE))


@router.post("", status_code=201)
@action(Action.NOTICE_MANAGE)
async def create_notice(request: NoticeRequest, caller: Caller, db: Transaction, board: BoardOf) -> NoticeView:
    """Tell everybody something, in the console and on the command line."""
    notice = await service.create(db, request, caller)
    board.forget()
    return NoticeView.model_validate(notice)


@router.delete("/{notice_id}")
@action(Action.NOTICE_MANAGE)
async def end_notice(notice_id: UUID, db: Transaction, board: BoardOf) -> Done:
    """End a notice: nobody is told it any more."""
    await service.end(db, notice_id)
    board.forget()
    return Done()
