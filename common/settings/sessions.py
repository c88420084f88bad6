"""Settings of sessions that a site chooses: the part `sessions` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from common.egress import Egress
from common.settings.options import WORDS
from common.strict import StrictModel


class SessionSettings(StrictModel):
    """What the network of sessions leads to. Agents have the same list, with the site's own services in it."""

    egress: Annotated[tuple[Egress, ...], WORDS] = Field(
        default=(),
        description="what sessions reach beside their own containers and the site's services "
        "([more](admin.md#what-sessions-reach)): `ADDRESS[/BITS][:PORT[-PORT][/udp]]`",
    )
