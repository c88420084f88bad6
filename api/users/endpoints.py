"""Endpoints of users; administrators only."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.access import Admin, action, require_admin
from api.database import Reading, Transaction
from api.logins import service as logins
from api.model import Done, UserNamePath
from api.policy import Action
from api.sessions import service as sessions
from api.users import service
from api.users.schemas import PasswordRequest, UserRequest, UserView

router = APIRouter(prefix="/users", tags=["users"], dependencies=[Depends(require_admin)])


@router.get("")
@action(Action.USER_READ)
async def list_users(db: Reading) -> list[UserView]:
    """List all users."""
    return [UserView.model_validate(user) for user in await service.every(db)]


@router.post("", status_code=201)
@action(Action.USER_CREATE)
async def create_user(request: UserRequest, db: Transaction) -> UserView:
    """Create a user."""
    return UserView.model_validate(await service.create(db, request))


@router.delete("/{name}")
@action(Action.USER_DELETE)
async def delete_user(name: UserNamePath, caller: Admin, db: Transaction) -> Done:
    """Delete a user who has no live session."""
    await sessions.refuse_while_live(db, user=name)
    await service.delete(db, name, caller.name)
    return Done()


@router.put("/{name}/password")
@action(Action.USER_CHANGE)
async def set_password(name: UserNamePath, request: PasswordRequest, db: Transaction) -> UserView:
    """Give a user a new password and end the user's logins."""
    user = await service.set_password(db, name, request.password)
    await logins.end_all(db, user.id)
    return UserView.model_validate(user)
