"""Account of the caller: the language in which the console speaks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Response

from api.auth.policy import Action
from api.console.routes import Router
from api.endpoints import logins
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Transaction
from api.resources.users.schemas import AccountChange
from api.tables.users import Language

router = Router()


@router.post("/language", status_code=204)
@action(Action.ACCOUNT_CHANGE)
async def choose_language(
    caller: Caller, db: Transaction, response: Response, language: Annotated[Language | None, Form()] = None
) -> None:
    """Speak another language to the caller from now on; none is that of the browser."""
    await logins.change_me(AccountChange(language=language), caller, db)
    response.headers["HX-Refresh"] = "true"
