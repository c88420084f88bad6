"""Bodies of the user endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from api.auth.policy import UserRole
from api.resources.schemas import Name, Password, Request, Text, UserName, View
from api.tables.users import Language, UserSource
from common.hints import hinted
from common.sentence import Sentence

Email = Annotated[
    Text,
    Field(max_length=254, pattern=r"^[^@\s]+@[^@\s]+$"),
    hinted(
        Sentence("write one such as {example}", example="alice@example.org"),
        Sentence("is no e-mail address"),
    ),
]


class UserRequest(Request):
    """A user to create. Whom an administrator of a domain creates belongs to that domain."""

    name: UserName
    password: Password
    role: UserRole = UserRole.MEMBER
    domain: Name | None = None
    policy: Name | None = None
    email: Email | None = None
    must_change_password: bool = False


class UserChange(Request):
    """What to change of a user; what is left out stays. Only `domain`, `policy` and `email` may be null: none.

    A new password ends the user's logins and revokes the user's keys. So does a `directory_id` of null, which gives the
    account to whoever signs in next by its name in the directory. A role that is given here is not the directory's any
    more, until `role_source` is.
    """

    password: Password = Field(default="")
    role: UserRole = UserRole.MEMBER
    disabled: bool = False
    must_change_password: bool = False
    domain: Name | None = None
    policy: Name | None = None
    email: Email | None = None
    role_source: UserSource = UserSource.LOCAL
    directory_id: None = None


class PasswordRequest(Request):
    """A new password."""

    password: Password


class AccountChange(Request):
    """What people change of their own account; a `language` of null is that of the browser."""

    language: Language | None


class UserView(View):
    """A user; the password never leaves the database.

    `directory_id` is the entry of the directory to which the account belongs, `role_source` who gives its role. The
    console speaks its `language`; where that is null, the browser's.
    """

    id: UUID
    name: str
    role: UserRole
    source: UserSource
    role_source: UserSource
    directory_id: str | None
    domain: str | None
    policy: str | None
    email: str | None
    language: Language | None
    disabled: bool
    must_change_password: bool
    created_at: datetime
