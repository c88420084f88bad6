"""Strict models, which take nothing that they do not know: the base of all of them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Base of what people and programs write into files and messages: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
