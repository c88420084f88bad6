"""Settings of repairs: the part `repair` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from common.repairs import REPAIR_OF
from common.settings.options import WORDS, keys_without
from common.strict import StrictModel


class AutomaticRepairSettings(StrictModel):
    """What the control API orders by itself, and when it does not."""

    repair_automatic: Annotated[list[str], WORDS] = Field(
        default=[],
        description=f"checks whose repair is ordered when they fail, of {', '.join(REPAIR_OF)}; needs `controller`",
    )
    repair_max_unhealthy_percentage: int = Field(
        default=20,
        ge=0,
        le=100,
        description="nothing is repaired while more of the nodes are unhealthy; one alone never forbids it, "
        "unless this is 0",
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if unknown := [name for name in self.repair_automatic if name not in REPAIR_OF]:
            raise ValueError(f"{unknown[0]!r} is no check with a repair; choose of {', '.join(REPAIR_OF)}")
        return self


class RepairSettings(AutomaticRepairSettings):
    """What repairs may do. They are run on the controller, whatever stands here."""

    model_config = keys_without("repair_")

    controller: bool = Field(
        default=False, description="run the service on the controller that takes administrators' orders from the API"
    )
    reboot: bool = Field(default=False, description="whether a ladder may come to the reboot of a node")

    @model_validator(mode="after")
    def _taken(self) -> Self:
        if self.repair_automatic and not self.controller:
            raise ValueError("`automatic` orders repairs, which nobody takes: set `controller: true`")
        return self
