"""Bodies of the login endpoints."""

from __future__ import annotations

from pydantic import Field

from api.model import Request, Text
from api.users.schemas import UserView


class LoginRequest(Request):
    """Who signs in. The rules of names and passwords are not applied here: a wrong one is simply wrong."""

    name: Text = Field(max_length=64)
    password: Text = Field(max_length=256)


class LoginView(UserView):
    """Who has signed in. A page sends `csrf_token` as X-CSRF-Token whenever it changes something with the cookie."""

    csrf_token: str
