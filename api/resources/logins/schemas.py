"""Bodies of the login endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.resources.schemas import Password, Request, Text, View
from api.resources.users.schemas import UserView


class LoginRequest(Request):
    """Who signs in. The rules of names and passwords are not applied here: a wrong one is simply wrong."""

    name: Text = Field(max_length=64)
    password: Text = Field(max_length=256)


class NewPasswordRequest(Request):
    """The password with which a user replaces the one that an administrator has made."""

    password: Password


class CsrfView(View):
    """What a page sends as X-CSRF-Token whenever it changes something with the cookie."""

    csrf_token: str


class SignedInView(UserView, CsrfView):
    """Who has signed in. A page sends `csrf_token` as X-CSRF-Token whenever it changes something with the cookie."""


class LoginView(View):
    """A browser in which the caller is signed in; `current` marks this one, `used_at` is right to the minute."""

    id: UUID
    address: str
    agent: str
    created_at: datetime
    used_at: datetime | None
    expires_at: datetime
    current: bool
