"""Forms of pages: what a browser sends becomes the body of a request of the API, and is judged as one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, Json, ValidationError

from common.errors import InputError
from common.sentence import Sentence, Several

CHOICES = 20
"""So many of the names that there are a hint says."""

_EXACT = 1e-6
"""What a number in a form may be off by, as it has no exact form."""

_PARTS = {
    **dict.fromkeys(("gpu_milli", "max_gpu_milli", "quota_milli", "limit_milli"), 1000),
    **dict.fromkeys(("cpu_milli", "max_cpu_milli", "cpu_quota_milli", "cpu_limit_milli"), 1000),
    **dict.fromkeys(("memory_mib", "max_memory_mib", "memory_quota_mib", "memory_limit_mib"), 1024),
    **dict.fromkeys(("limit_s", "interactive_limit_s", "interactive_extension_s", "min_runtime_s"), 3600),
}
"""How many of the API's units make one of a form's: GPU, core, GiB or hour."""

Body = TypeVar("Body", bound=BaseModel)
Line = Annotated[str, Field(max_length=2000)]
"""What is typed into one field."""
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""An amount as people write it, in GPUs, cores or GiB."""
Shown = Json[dict[str, Any]] | None
"""What a form showed when a browser came to it, as the API tells it."""


def checked(model: type[Body], body: Mapping[str, Any]) -> Body:
    """Return the body of a request; raises RequestValidationError, as for a program that sent it."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise RequestValidationError([_in_form(dict(one)) for one in error.errors()]) from None


def _in_form(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is wrong with a body, with the limits of an amount in the units of the form."""
    place = found["loc"]
    about = found.get("ctx", {})
    if parts := _PARTS.get(place[0] if place else ""):
        about = {name: round(limit / parts, 6) if name in ("ge", "le") else limit for name, limit in about.items()}
    return found | {"loc": ("body", *place), "ctx": about}


def differing(model: type[Body], body: Mapping[str, Any], shown: Mapping[str, Any] | None) -> Body:
    """Return the body of a change without what is as the form had `shown` it: others may have changed that since.

    Raises RequestValidationError.
    """
    wanted = checked(model, body)
    before = checked(model, {field: value for field, value in (shown or {}).items() if field in body})
    same = {field for field in before.model_fields_set if getattr(before, field) == getattr(wanted, field)}
    return checked(model, {field: value for field, value in body.items() if field not in same})


def lists(form: BaseModel, *fields: str) -> dict[str, list[str]]:
    """Return the names that come into lists and go, of those fields of a form that somebody has filled in."""
    changes = (f"{verb}_{field}" for verb in ("add", "remove") for field in fields)
    return {change: found for change in changes if (found := names(getattr(form, change)))}


def check_leaving(change: BaseModel, found: BaseModel, *fields: str) -> None:
    """Check the names that go; raises InputError for one that is not there, and may be another one misspelt."""
    for field in fields:
        present: Collection[str] = getattr(found, field)
        for name in getattr(change, f"remove_{field}"):
            if name not in present:
                hint = (
                    Sentence("choose of {names}", names=Several(sorted(present)[:CHOICES]))
                    if present
                    else Sentence("there is nothing to take out")
                )
                raise InputError(Sentence("{name} is not in it", name=name), where=f"remove_{field}", hint=hint)


def whole(field: str, amount: float, parts: int, step: int = 1) -> int:
    """Return an amount in parts, such as thousandths; raises InputError for what is not so many `step`s of them.

    What people write is kept as it is, or not at all.
    """
    nearest = step * round(amount * parts / step)
    if abs(amount * parts - nearest) > _EXACT:
        raise InputError(
            Sentence("{amount} cannot be kept as it is", amount=amount),
            where=field,
            # nothing is often no limit, which is far from little
            hint=Sentence("write {amount}", amount=(nearest or step) / parts),
        )
    return nearest


def whole_or_none(field: str, amount: float | None, parts: int) -> int | None:
    """Return an amount in parts as `whole` does; None for what somebody has left empty."""
    return None if amount is None else whole(field, amount, parts)


def names(words: str) -> list[str]:
    """Return names that are parted by spaces or commas, of any keyboard."""
    return [name for name in re.split(r"[\s,，、]+", words) if name]
