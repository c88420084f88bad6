"""Endpoints of users, for administrators: of the site, or of the users' domain."""

from __future__ import annotations

from uuid import UUID

from api.auth.policy import Action
from api.endpoints.access import Caller, action
from api.endpoints.routes import Router
from api.endpoints.transactions import Reading, Transaction
from api.resources.api_keys import service as api_keys
from api.resources.api_keys.schemas import ApiKeyView, RevokedView
from api.resources.groups import service as groups
from api.resources.logins import service as logins
from api.resources.projects import memberships
from api.resources.schemas import Done, UserNamePath
from api.resources.sessions import service as sessions
from api.resources.users import service
from api.resources.users.schemas import PasswordRequest, UserChange, UserRequest, UserView

router = Router(prefix="/users", tags=["users"])


@router.get("")
@action(Action.USER_READ)
async def list_users(caller: Caller, db: Reading) -> list[UserView]:
    """List the users that the caller looks after."""
    return [UserView.model_validate(user) for user in await service.visible(db, caller)]


@router.get("/{name}")
@action(Action.USER_READ)
async def get_user(name: UserNamePath, caller: Caller, db: Reading) -> UserView:
    """Show one user."""
    return UserView.model_validate(await service.get_for(db, name, caller, Action.USER_READ))


@router.post("", status_code=201)
@action(Action.USER_CREATE)
async def create_user(request: UserRequest, caller: Caller, db: Transaction) -> UserView:
    """Create a user."""
    return UserView.model_validate(await service.create(db, request, caller))


@router.patch("/{name}")
@action(Action.USER_CHANGE)
async def change_user(name: UserNamePath, request: UserChange, caller: Caller, db: Transaction) -> UserView:
    """Change a user; a new password, and a `directory_id` of null, ends the user's logins and revokes the user's keys.

    Who is moved to another domain leaves the projects and resource groups of the one before, and must have no live
    session there.
    """
    moves = "domain" in request.model_fields_set
    user = await service.get_for(db, name, caller, Action.USER_CHANGE, lock=moves)
    await service.change(db, user, request, caller)
    if moves:
        await sessions.refuse_while_abroad(db, user)
        await memberships.leave_other_domains(db, user)
        await groups.leave_other_domains(db, user)
    if request.model_fields_set & {"password", "directory_id"}:
        await logins.end_all(db, user.id)
        await api_keys.revoke_all(db, user.id)
    return UserView.model_validate(user)


@router.put("/{name}/password")
@action(Action.USER_CHANGE)
async def set_password(name: UserNamePath, request: PasswordRequest, caller: Caller, db: Transaction) -> UserView:
    """Give a user a new password, end the user's logins and revoke the user's keys."""
    return await change_user(name, UserChange(password=request.password), caller, db)


@router.delete("/{name}")
@action(Action.USER_DELETE)
async def delete_user(name: UserNamePath, caller: Caller, db: Transaction) -> Done:
    """Delete a user who has no live session."""
    user = await service.get_for(db, name, caller, Action.USER_DELETE, lock=True)
    await sessions.refuse_while_live(db, user=name)
    await service.delete(db, user, caller)
    return Done()


@router.get("/{name}/api-keys")
@action(Action.USER_READ)
async def list_api_keys_of_user(name: UserNamePath, caller: Caller, db: Reading) -> list[ApiKeyView]:
    """List a user's keys."""
    user = await service.get_for(db, name, caller, Action.USER_READ)
    return [ApiKeyView.model_validate(key) for key in await api_keys.of_user(db, user.id)]


@router.delete("/{name}/api-keys/{key_id}")
@action(Action.USER_CHANGE)
async def delete_api_key_of_user(name: UserNamePath, key_id: UUID, caller: Caller, db: Transaction) -> RevokedView:
    """Revoke one of a user's keys, with all that were made with it."""
    user = await service.get_for(db, name, caller, Action.USER_CHANGE)
    return RevokedView(with_it=await api_keys.revoke(db, user.id, key_id))


@router.delete("/{name}/logins")
@action(Action.USER_CHANGE)
async def end_logins_of_user(name: UserNamePath, caller: Caller, db: Transaction) -> Done:
    """Sign a user out everywhere; keys stay."""
    user = await service.get_for(db, name, caller, Action.USER_CHANGE)
    await logins.end_all(db, user.id)
    return Done()
