"""Bodies of the user policy endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.resources.schemas import Name, Request, Text, View

Description = Annotated[Text, Field(max_length=2000)]
Sessions = Annotated[int, Field(ge=0, le=1_000_000)]
Amount = Annotated[int, Field(ge=0, le=1_000_000_000_000)]


class PolicyChange(Request):
    """What to change of a policy; what is left out stays, null takes a limit away."""

    description: Description = ""
    max_sessions: Sessions | None = None
    max_gpu_milli: Amount | None = None
    max_cpu_milli: Amount | None = None
    max_memory_mib: Amount | None = None


class PolicyRequest(PolicyChange):
    """A policy to create: what a user's live sessions may hold together; what is left out or null has no limit."""

    name: Name


class PolicyView(View):
    """A policy; GPUs in milli-GPU, CPU in thousandths of a core, memory in MiB."""

    name: str
    description: str
    max_sessions: int | None
    max_gpu_milli: int | None
    max_cpu_milli: int | None
    max_memory_mib: int | None
    created_at: datetime
