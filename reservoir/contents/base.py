"""The base of what locks and bundles say, and names that may stand in a folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

# a name that can stand in a folder: nothing in a bundle may point outside of it
Filename = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+~^!-]*$", max_length=255)]


class Model(BaseModel):
    """Base of machine-written documents: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
