"""Endpoints to sign in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.access import COOKIE, Caller, SettingsOf, action, csrf_token, public
from api.database import DatabaseOf, Reading, Transaction
from api.logins import service
from api.logins.schemas import LoginRequest, LoginView
from api.model import Done
from api.policy import Action
from api.users import service as users
from api.users.schemas import UserView

router = APIRouter(prefix="/auth", tags=["auth"])


@router.post("/login")
@public
async def login(request: LoginRequest, response: Response, database: DatabaseOf, settings: SettingsOf) -> LoginView:
    """Sign in with name and password; the answer sets a cookie."""
    async with database.reading() as db:
        known = await users.find(db, request.name)
    # Hashing takes a while, and a crowd waits for its turn: no connection to the database is held meanwhile.
    user = await users.check_password(known, request.password)
    async with database.transaction() as db:
        secret = await service.begin(db, user, settings.login_lifetime_s)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=settings.login_lifetime_s,
        path="/",
        secure=settings.serves_tls,
        httponly=True,
        samesite="lax",
    )
    return LoginView(**UserView.model_validate(user).model_dump(), csrf_token=csrf_token(secret))


@router.post("/logout")
@action(Action.ACCOUNT_LOGOUT)
async def logout(request: Request, response: Response, db: Transaction) -> Done:
    """Sign out: the cookie is worth nothing afterwards."""
    secret = request.cookies.get(COOKIE)
    if secret:
        await service.end(db, secret)
    response.delete_cookie(COOKIE, path="/")
    return Done()


@router.get("/me")
@action(Action.ACCOUNT_READ)
async def me(caller: Caller, db: Reading) -> UserView:
    """Say who the caller is."""
    return UserView.model_validate(await users.get(db, caller.name))
