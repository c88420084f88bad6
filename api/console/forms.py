"""Forms of pages: what a browser sends becomes the body of a request of the API, and is judged as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

Body = TypeVar("Body", bound=BaseModel)


def checked(model: type[Body], body: Mapping[str, Any]) -> Body:
    """Return the body of a request; raises RequestValidationError, as for a program that sent it."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None


def names(words: str) -> list[str]:
    """Return names that are parted by spaces or commas."""
    return words.replace(",", " ").split()
