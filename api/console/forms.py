"""Forms of pages: what a browser sends becomes the body of a request of the API, and is judged as one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from common.errors import InputError

CHOICES = 20
"""So many of the names that there are a hint says."""

Body = TypeVar("Body", bound=BaseModel)


def checked(model: type[Body], body: Mapping[str, Any]) -> Body:
    """Return the body of a request; raises RequestValidationError, as for a program that sent it."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None


def check_leaving(field: str, leaving: Iterable[str], present: Collection[str]) -> None:
    """Check the names of who goes; raises InputError for one that is not there, and may be another one misspelt."""
    for name in leaving:
        if name not in present:
            hint = f"choose of {', '.join(sorted(present)[:CHOICES])}" if present else "there is nothing to take out"
            raise InputError(f"{name} is not in it", where=field, hint=hint)


def names(words: str) -> list[str]:
    """Return names that are parted by spaces or commas, of any keyboard."""
    return [name for name in re.split(r"[\s,，、]+", words) if name]
