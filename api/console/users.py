"""Users, for administrators: who there is, new ones, and who may sign in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth.policy import Action, UserRole
from api.console import forms, pages
from api.console.routes import REFRESH, Router
from api.endpoints import users
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading, Transaction
from api.lists import stamps
from api.resources.schemas import UserNamePath
from api.resources.users.schemas import UserChange, UserRequest

SHOWN = 200

router = Router(prefix="/users")
Line = Annotated[str, Field(max_length=256)]


class UserForm(BaseModel):
    """The form as a browser sends it; whoever gets a password so changes it at the first login."""

    name: Line = ""
    password: Line = ""
    email: Line = ""
    role: UserRole = UserRole.MEMBER


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
        "roles": UserRole,
        "may_change": caller.allows(Action.USER_CHANGE),
    }
    return await pages.live(request, "users.html", "users_live.html", values, stamp=stamp)


@router.post("", status_code=204, dependencies=[REFRESH])
@action(Action.USER_CREATE)
async def create_user(form: Annotated[UserForm, Form()], caller: Caller, db: Transaction) -> None:
    """Create a user, who changes the password at the first login."""
    body = {"name": form.name, "password": form.password, "role": form.role, "email": form.email or None}
    await users.create_user(forms.checked(UserRequest, body | {"must_change_password": True}), caller, db)


@router.post("/{name}", status_code=204, dependencies=[REFRESH])
@action(Action.USER_CHANGE)
async def change_user(name: UserNamePath, disabled: Annotated[bool, Form()], caller: Caller, db: Transaction) -> None:
    """Let a user sign in, or not."""
    await users.change_user(name, UserChange(disabled=disabled), caller, db)


@router.post("/{name}/delete", status_code=204, dependencies=[REFRESH])
@action(Action.USER_DELETE)
async def delete_user(name: UserNamePath, caller: Caller, db: Transaction) -> None:
    """Delete a user who has no live session."""
    await users.delete_user(name, caller, db)
