"""Bodies of the user endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from api.model import Password, Request, UserName, View
from api.policy import Role


class UserRequest(Request):
    """A user to create."""

    name: UserName
    password: Password
    role: Role = Role.MEMBER


class PasswordRequest(Request):
    """A new password."""

    password: Password


class UserView(View):
    """A user; the password never leaves the database."""

    id: UUID
    name: str
    role: Role
    created_at: datetime
