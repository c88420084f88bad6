"""Settings of the edge where people call: the part `edge` of `site.yml`. Pure."""

from __future__ import annotations

from pydantic import Field

from common.strict import StrictModel


class EdgeSettings(StrictModel):
    """How much of the edge one caller may have. The server is nginx and knows none of it: the role tells it."""

    connections_per_address: int = Field(
        default=1024,
        ge=16,
        le=8192,
        description="most connections of one address to console, API and apps; raise it where many people share one",
    )
