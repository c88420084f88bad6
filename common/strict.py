"""Base of models that take nothing which they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Base of what people and programs write into files and messages: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
