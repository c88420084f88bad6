"""Endpoints to sign in and out, and of the caller's own logins."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request, Response

from api.auth.policy import Action
from api.clock import now
from api.endpoints import auditing
from api.endpoints.access import (
    Caller,
    KnownCallerOf,
    SettingsOf,
    action,
    check_origin,
    cookie_name,
    csrf_token,
    is_secure,
    public,
)
from api.endpoints.routes import Router
from api.endpoints.transactions import DatabaseOf, Reading, Transaction
from api.resources.api_keys import service as api_keys
from api.resources.logins import check, service, throttle
from api.resources.logins.callers import KnownCaller
from api.resources.logins.schemas import CsrfView, LoginRequest, LoginView, NewPasswordRequest, SignedInView
from api.resources.schemas import Done, is_user_name
from api.resources.users import service as users
from api.resources.users.schemas import AccountChange, UserView
from api.tables.logins import Login
from common.errors import ConflictError, ForbiddenError, ThrottledError, UnavailableError

router = Router(prefix="/auth", tags=["auth"])


@router.post("/login")
@public
async def login(
    body: LoginRequest, request: Request, response: Response, database: DatabaseOf, settings: SettingsOf
) -> SignedInView:
    """Sign in with name and password; the answer sets a cookie, and has the token for changes with it."""
    # a page that signs its visitor in as somebody else would have that person's work seen there
    check_origin(request)
    address = request.client.host if request.client else ""
    if told := auditing.told_request(request):
        # what is typed here may be a password
        told.user = body.name if is_user_name(body.name) else ""
    attempt = throttle.Try(body.name, address)
    began = now()
    async with database.transaction() as db:
        before = await throttle.begin(db, attempt, began)
    try:
        checked = await check.check(database, settings, body.name, body.password)
        try:
            async with database.transaction() as db:
                await auditing.begin(db, request)
                user = await check.account(db, body.name, checked)
                auditing.count(request, user.id, signed_in=True)
                await throttle.succeed(db, attempt, now())
                agent = request.headers.get("user-agent", "")
                secret = await service.begin(db, user, settings.login_lifetime_s, address=address, agent=agent)
        except ForbiddenError:
            await check.forbidden(database, settings, body.name, checked)
            raise
    except (UnavailableError, ThrottledError):
        async with database.transaction() as db:
            await throttle.withdraw(db, attempt, began, before)
        raise
    _set_cookie(request, response, secret, settings.login_lifetime_s)
    return SignedInView(**UserView.model_validate(user).model_dump(), csrf_token=csrf_token(secret))


@router.post("/logout")
@action(Action.ACCOUNT_LOGOUT)
async def logout(known: KnownCallerOf, request: Request, response: Response, db: Transaction) -> Done:
    """Sign out: the cookie is worth nothing afterwards. A key stays as it is."""
    if known.table is Login:
        await service.end(db, known.identity.id, known.row_id)
    _set_cookie(request, response, "", 0)
    return Done()


@router.get("/me")
@action(Action.ACCOUNT_READ)
async def me(caller: Caller, db: Reading) -> UserView:
    """Say who the caller is."""
    return UserView.model_validate(await users.get(db, caller.name))


@router.patch("/me")
@action(Action.ACCOUNT_CHANGE)
async def change_me(body: AccountChange, caller: Caller, db: Transaction) -> UserView:
    """Change what people decide for themselves."""
    user = await users.get(db, caller.name)
    user.language = body.language
    return UserView.model_validate(user)


@router.get("/csrf")
@action(Action.ACCOUNT_READ)
async def show_csrf_token(known: KnownCallerOf, request: Request) -> CsrfView:
    """Show the token that a page sends as X-CSRF-Token whenever it changes something with the cookie."""
    if known.table is not Login:
        raise ConflictError("an API key needs no token", hint="leave the header out")
    return CsrfView(csrf_token=csrf_token(request.cookies[cookie_name(request)]))


@router.post("/password")
@action(Action.ACCOUNT_PASSWORD)
async def replace_given_password(body: NewPasswordRequest, known: KnownCallerOf, db: Transaction) -> UserView:
    """Replace the password that an administrator has made; other logins end, and keys are revoked."""
    user = await users.get(db, known.identity.name)
    await users.replace_given_password(user, body.password, known.identity)
    await service.end_all(db, user.id, but=_login_of(known))
    await api_keys.revoke_all(db, user.id)
    return UserView.model_validate(user)


@router.get("/logins")
@action(Action.ACCOUNT_READ)
async def list_logins(known: KnownCallerOf, db: Reading) -> list[LoginView]:
    """List the browsers in which the caller is signed in."""
    return [_view(login, known) for login in await service.of_user(db, known.identity.id)]


@router.delete("/logins/{login_id}")
@action(Action.ACCOUNT_CHANGE)
async def end_login(login_id: UUID, caller: Caller, db: Transaction) -> Done:
    """Sign out in one browser."""
    await service.end(db, caller.id, login_id)
    return Done()


@router.delete("/logins")
@action(Action.ACCOUNT_CHANGE)
async def end_logins(caller: Caller, db: Transaction) -> Done:
    """Sign out everywhere; keys stay."""
    await service.end_all(db, caller.id)
    return Done()


def _set_cookie(request: Request, response: Response, secret: str, lifetime_s: int) -> None:
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=lifetime_s,
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="lax",
    )


def _login_of(known: KnownCaller) -> UUID | None:
    return known.row_id if known.table is Login else None


def _view(login: Login, known: KnownCaller) -> LoginView:
    fields = {name: getattr(login, name) for name in LoginView.model_fields if name != "current"}
    return LoginView(**fields, current=login.id == _login_of(known))
