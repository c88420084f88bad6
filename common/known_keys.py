"""Keys that a model knows at a place of a document, and the one that a misspelt key is most like. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

Location = tuple[int | str, ...]


def nearest(model: type[BaseModel], location: Location) -> str | None:
    """Return the key that was meant by the last part of a location, as pydantic says it; None where none is like it."""
    *above, unknown = location
    found = [model]
    for part in above:
        found = list(_below(found, part))
    keys = dict.fromkeys(key for each in found for key in _fields(each))
    return next(iter(get_close_matches(str(unknown).lower(), keys, n=1)), None)


def _below(models: list[type[BaseModel]], part: int | str) -> Iterator[type[BaseModel]]:
    """Yield the models at one more part of a location: a key, an index or the name of a member of a union."""
    tagged = [model for model in models if part in _tags(model)]
    for model in models:
        if part in (fields := _fields(model)):
            yield from _models(fields[str(part)])
        elif isinstance(part, int) or model in tagged or not tagged:
            yield model


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the types of a model's fields by the keys that stand in documents."""
    return {
        alias if isinstance(alias := field.validation_alias, str) else name: field.annotation
        for name, field in model.model_fields.items()
    }


def _tags(model: type[BaseModel]) -> set[Any]:
    """Return the values by which a model is told from others of its union."""
    return {value for kind in _fields(model).values() for value in get_args(kind) if isinstance(value, str)}


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type is made of, such as those of a list or of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models(inner)
