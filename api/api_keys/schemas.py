"""Bodies of the API key endpoints."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from api.model import Request, Text, View


class ApiKeyRequest(Request):
    """A key to make; its name says where it is used, such as the name of a machine."""

    name: Text = Field(min_length=1, max_length=64)


class ApiKeyView(View):
    """A key as it is shown later: `prefix` are its first characters."""

    id: UUID
    name: str
    prefix: str
    created_at: datetime


class NewApiKeyView(ApiKeyView):
    """A key as it is shown once, when it is made."""

    key: str
