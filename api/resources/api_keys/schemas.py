"""Bodies of the API key endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.auth.policy import KeyScope
from api.resources.schemas import Done, Request, Text, View


class ApiKeyRequest(Request):
    """A key to make; its name says where it is used, such as on which machine. It holds for `days`, or for ever.

    `scope` is what it is good for: `read`, `submit` (work with sessions, too), or `all` that its user may do. A key
    that is made with a key does not end after that one, and without `days` together with it.
    """

    name: Text = Field(min_length=1, max_length=64)
    days: int | None = Field(default=None, ge=1, le=3650)
    scope: KeyScope = KeyScope.ALL


class ApiKeyView(View):
    """A key as it is shown later: `prefix` are its first characters, `used_at` is right to the minute.

    `made_by` is the id of the key that made it, and whose end is its own.
    """

    id: UUID
    name: str
    prefix: str
    scope: KeyScope
    made_by: UUID | None
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None


class NewApiKeyView(ApiKeyView):
    """A key as it is shown once, when it is made."""

    key: str


class RevokedView(Done):
    """Answer to the end of a key: how many keys went with it, that were made with it or with one of these."""

    with_it: int
