"""Users, for administrators: who there is, new ones, who may sign in, and what else is changed of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from api.auth.identity import Identity
from api.auth.policy import Action, UserRole
from api.console import forms, pages
from api.console.routes import REFRESH, Router, back_to
from api.endpoints import users
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.domains import service as domains
from api.resources.schemas import UserNamePath
from api.resources.user_policies import service as user_policies
from api.resources.users import service
from api.resources.users.schemas import PasswordRequest, UserChange, UserRequest, UserView
from api.tables.users import UserSource

SHOWN = 200
GIVEN = (UserRole.MEMBER, UserRole.ADMIN)
"""Roles that need no right of their own to be given."""

router = Router(prefix="/users")
Line = Annotated[str, Field(max_length=256)]


class UserForm(BaseModel):
    """The form as a browser sends it; whoever gets a password so changes it at the first login."""

    name: Line = ""
    password: Line = ""
    email: Line = ""
    role: UserRole = UserRole.MEMBER


class ChangeForm(BaseModel):
    """What to change: whether somebody may sign in, or, where the form has `shown` it, all that a user's page has."""

    shown: forms.Shown = None
    disabled: bool | None = None
    role: UserRole = UserRole.MEMBER
    email: Line = ""
    policy: Line = ""
    domain: Line = ""


@router.get("")
@action(Action.USER_READ)
async def list_users(
    *, request: Request, caller: Caller, db: Reading, q: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the users that the caller looks after, by name: those with some letters in name or address."""
    stamp = await pages.stamp(request, db, stamps.PEOPLE, caller.id, request.url)
    if answer := pages.unchanged(request, stamp):
        return answer
    word = q.strip().lower()
    found = [user for user in await users.list_users(caller, db) if word in f"{user.name} {user.email or ''}".lower()]
    values = {
        "q": q,
        "users": found[:SHOWN],
        "more": max(0, len(found) - SHOWN),
        "roles": _roles(caller),
        "may_change": caller.allows(Action.USER_CHANGE),
    }
    return await pages.live(request, "users.html", "users_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.USER_CREATE)
async def create_user(form: Annotated[UserForm, Form()], caller: Caller, db: Transaction) -> None:
    """Create a user, who changes the password at the first login."""
    body = {"name": form.name, "password": form.password, "role": form.role, "email": form.email or None}
    await users.create_user(forms.checked(UserRequest, body | {"must_change_password": True}), caller, db)


@router.get("/{name}")
@action(Action.USER_CHANGE)
async def show_user(name: UserNamePath, request: Request, caller: Caller, db: Reading) -> HTMLResponse:
    """Show a user to whoever changes the account."""
    user = await service.get_for(db, name, caller, Action.USER_CHANGE)
    values = {
        "user": UserView.model_validate(user),
        "roles": _roles(caller, user.role),
        "policies": [each.name for each in await user_policies.every(db)],
        "domains": [each.name for each in await domains.visible(db, caller)],
        "has_password": user.source is UserSource.LOCAL,
    }
    return pages.page(request, "user.html", values)


@router.post("/{name}", status_code=204, dependencies=[REFRESH])
@action(Action.USER_CHANGE)
async def change_user(
    name: UserNamePath, form: Annotated[ChangeForm, Form()], caller: Caller, db: Transaction, response: Response
) -> None:
    """Change a user, or let one sign in or not."""
    await users.change_user(name, forms.differing(UserChange, _body(form, caller), form.shown), caller, db)
    if form.shown is not None:
        response.headers["HX-Redirect"] = "/users"


@router.post("/{name}/password", status_code=204, dependencies=[back_to("/users")])
@action(Action.USER_CHANGE)
async def replace_password(
    *, name: UserNamePath, password: Annotated[Line, Form()] = "", caller: Caller, db: Transaction
) -> None:
    """Give a user another password, who changes it at the next login; logins and keys end."""
    wanted = forms.checked(PasswordRequest, {"password": password})
    await users.change_user(name, UserChange(password=wanted.password, must_change_password=True), caller, db)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.USER_DELETE)
async def delete_user(name: UserNamePath, caller: Caller, db: Transaction) -> None:
    """Delete a user who has no live session."""
    await users.delete_user(name, caller, db)


def _roles(caller: Identity, own: UserRole = UserRole.MEMBER) -> list[UserRole]:
    """Return the roles that the caller may give, and a user's own."""
    return [role for role in UserRole if role in (own, *GIVEN) or caller.allows(Action.USER_AUDIT)]


def _body(form: ChangeForm, caller: Identity) -> dict[str, Any]:
    """Return the body of the API's request: of what the form offers to the caller."""
    body: dict[str, Any] = {} if form.disabled is None else {"disabled": form.disabled}
    if form.shown is not None:
        body |= {"role": form.role, "email": form.email or None}
        body |= {"policy": form.policy or None} if caller.allows(Action.USER_LIMIT) else {}
        body |= {"domain": form.domain or None} if caller.allows(Action.USER_MOVE) else {}
    return body
