"""Bodies of the domain endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.model import Name, Request, Text, View

Description = Annotated[Text, Field(max_length=2000)]


class DomainRequest(Request):
    """A domain to create."""

    name: Name
    description: Description = ""


class DomainView(View):
    """A domain; users, projects and resource groups name it."""

    name: str
    description: str
    created_at: datetime
