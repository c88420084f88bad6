"""Changes of lists in requests: a list is replaced as a whole, or changed by the names that come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from pydantic import BaseModel

from common.sentence import Sentence, Several

B = TypeVar("B", bound=BaseModel)


def one_form(request: B, *fields: str) -> B:
    """Return a request; raises ValueError where it replaces a list and changes it, or adds what it removes."""
    for field in fields:
        added, removed = (getattr(request, f"{verb}_{field}") for verb in ("add", "remove"))
        if field in request.model_fields_set and (added or removed):
            raise ValueError(
                Sentence(
                    "{field} replaces the list, add_{field} and remove_{field} change it: send one form", field=field
                )
            )
        if both := sorted(set(added) & set(removed)):
            raise ValueError(
                Sentence(
                    "add_{field} and remove_{field} both name {names}: name each in one of them",
                    field=field,
                    names=Several(both),
                )
            )
    return request


def changed(request: BaseModel, field: str, present: Iterable[str]) -> list[str] | None:
    """Return what a list of names is to be after a request; None leaves it as it is.

    The caller has locked what the list is of: of two requests at once the later one sees what the other has changed.
    """
    replaced: list[str] | None = getattr(request, field)
    added: Collection[str] = getattr(request, f"add_{field}", ())
    removed: Collection[str] = getattr(request, f"remove_{field}", ())
    if not (added or removed):
        return replaced
    return [name for name in dict.fromkeys([*present, *added]) if name not in removed]
