"""What the bodies of all resources share: the base of requests, and the rules of names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

SPECIALS = "~!@#$%^&*<>?"


class Request(BaseModel):
    """Base of every body that a client sends: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class View(BaseModel):
    """Base of every body that we answer with; it can be read from a row."""

    model_config = ConfigDict(from_attributes=True)


class Done(View):
    """Answer of an action that returns nothing else."""

    done: bool = True


def _name(value: str) -> str:
    if not all("a" <= char <= "z" or "0" <= char <= "9" or char == "-" for char in value):
        raise ValueError("only lower-case letters, digits and hyphens make a name")
    if value.startswith("-") or value.endswith("-") or "--" in value:
        raise ValueError("a hyphen stands neither first, nor last, nor beside another one")
    return value


def _password(value: str) -> str:
    if any(not (char.isascii() and char.isalnum()) and char not in SPECIALS for char in value):
        raise ValueError(f"only letters, digits and {SPECIALS} make a password")
    if not any(char.isalpha() for char in value):
        raise ValueError("a password needs at least one letter")
    if not any(char.isdigit() for char in value):
        raise ValueError("a password needs at least one digit")
    if not any(char in SPECIALS for char in value):
        raise ValueError(f"a password needs at least one of {SPECIALS}")
    return value


def _plain(value: str) -> str:
    if "\0" in value:
        raise ValueError("a NUL character is not text")
    return value


UserName = Annotated[str, Field(min_length=3, max_length=20), AfterValidator(_name)]
Name = Annotated[str, Field(min_length=1, max_length=20), AfterValidator(_name)]
Password = Annotated[str, Field(min_length=8, max_length=20), AfterValidator(_password)]
Text = Annotated[str, AfterValidator(_plain)]

UserNamePath = Annotated[str, Path(min_length=1, max_length=20, pattern=r"^[a-z0-9-]+$")]
NamePath = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[a-z0-9-]+$")]
NameQuery = Annotated[str, Query(min_length=1, max_length=20, pattern=r"^[a-z0-9-]+$")]
