"""Bases of the bodies of requests and answers, and the rules of names, which all resources share."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema

from common.hints import hinted
from common.sentence import Sentence

SPECIALS = "~!@#$%^&*<>?"
USER_NAME_LENGTH = (3, 20)
NAME_LENGTH = 20
HALF_A_PAIR = re.compile("[\ud800-\udfff]")
"""What JSON may write as an escape, and UTF-8 cannot encode."""
NUMBERS = ("int", "float")
"""Kinds of schemas, as pydantic calls them, that take other things for numbers unless they are strict."""
YEARS = (1970, 9000)
"""Years that a moment may have: far from those that a time zone could push out of the calendar."""


def _take_no_other_for_numbers(schema: Any) -> None:
    """Make every number of a schema strict: neither `true` nor `"1"` is one."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _take_no_other_for_numbers(part)
    elif isinstance(schema, dict):
        if schema.get("type") in NUMBERS:
            schema["strict"] = True
        for part in schema.values():
            _take_no_other_for_numbers(part)


class Request(BaseModel):
    """Base of every body that a client sends: unknown keys are refused, and what is taken for a number but is none."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how a body is checked; strict models would refuse moments and ids, which JSON writes as text."""
        schema = handler(source)
        _take_no_other_for_numbers(handler.resolve_ref_schema(schema))
        return schema


class Change(Request):
    """Base of what to change of a thing: a key that is left out stays as it is, and none but `NULLABLE` may be null."""

    NULLABLE: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*")
    @classmethod
    def _not_null(cls, value: Any, about: ValidationInfo) -> Any:
        if value is None and about.field_name not in cls.NULLABLE:
            raise ValueError(Sentence("null is no value here; leave the key out to keep what is"))
        return value


class View(BaseModel):
    """Base of every body that we answer with; it can be read from a row."""

    model_config = ConfigDict(from_attributes=True)


class Done(View):
    """Answer of an action that returns nothing else."""

    done: bool = True


def _name(value: str) -> str:
    if not all("a" <= char <= "z" or "0" <= char <= "9" or char == "-" for char in value):
        raise ValueError(Sentence("only lower-case letters, digits and hyphens make a name"))
    if value.startswith("-") or value.endswith("-") or "--" in value:
        raise ValueError(Sentence("a hyphen stands neither first, nor last, nor beside another one"))
    return value


def _password(value: str) -> str:
    if any(not (char.isascii() and char.isalnum()) and char not in SPECIALS for char in value):
        raise ValueError(Sentence("only letters, digits and {specials} make a password", specials=SPECIALS))
    if not any(char.isalpha() for char in value):
        raise ValueError(Sentence("a password needs at least one letter"))
    if not any(char.isdigit() for char in value):
        raise ValueError(Sentence("a password needs at least one digit"))
    if not any(char in SPECIALS for char in value):
        raise ValueError(Sentence("a password needs at least one of {specials}", specials=SPECIALS))
    return value


def _plain(value: str) -> str:
    if "\0" in value:
        raise ValueError(Sentence("a NUL character is not text"))
    if not value.isascii() and HALF_A_PAIR.search(value):
        raise ValueError(Sentence("half of a surrogate pair is not text"))
    return value


def _utc(value: datetime) -> datetime:
    if not YEARS[0] <= value.year <= YEARS[1]:
        raise ValueError(Sentence("a year from {first} to {last}", first=YEARS[0], last=YEARS[1]))
    return value.astimezone(UTC)


def is_name(value: str) -> bool:
    """Return whether a project, a session or a volume may have this name."""
    try:
        return 1 <= len(value) <= NAME_LENGTH and _name(value) == value
    except ValueError:
        return False


def is_user_name(value: str) -> bool:
    """Return whether a user may have this name."""
    try:
        return USER_NAME_LENGTH[0] <= len(value) <= USER_NAME_LENGTH[1] and _name(value) == value
    except ValueError:
        return False


UserName = Annotated[
    str,
    Field(min_length=USER_NAME_LENGTH[0], max_length=USER_NAME_LENGTH[1]),
    AfterValidator(_name),
    hinted(
        Sentence(
            "write lower-case letters, digits and hyphens, {least} to {most}",
            least=USER_NAME_LENGTH[0],
            most=USER_NAME_LENGTH[1],
        )
    ),
]
Name = Annotated[
    str,
    Field(min_length=1, max_length=NAME_LENGTH),
    AfterValidator(_name),
    hinted(Sentence("write lower-case letters, digits and hyphens, {most} at most", most=NAME_LENGTH)),
]
Password = Annotated[str, Field(min_length=8, max_length=20), AfterValidator(_password)]
Text = Annotated[str, AfterValidator(_plain)]
Moment = Annotated[AwareDatetime, AfterValidator(_utc)]

NAME = Sentence("write lower-case letters, digits and hyphens, {most} at most", most=NAME_LENGTH)
LONG_NAME = Sentence("write lower-case letters, digits and hyphens, {most} at most", most=63)
UserNamePath = Annotated[str, Path(min_length=1, max_length=NAME_LENGTH, pattern=r"^[a-z0-9-]+$"), hinted(NAME)]
NamePath = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[a-z0-9-]+$"), hinted(LONG_NAME)]
NameQuery = Annotated[str, Query(min_length=1, max_length=NAME_LENGTH, pattern=r"^[a-z0-9-]+$"), hinted(NAME)]
NODE_NAME = hinted(Sentence("write it as the list of nodes does"), Sentence("is no name of a node"))
PLACE = hinted(Sentence("send what `X-Next` of the answer before said"), Sentence("is no place in the list"))
"""Belongs to what says after which row of a list an answer begins."""
