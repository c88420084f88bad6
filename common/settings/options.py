"""Types of the settings that a site chooses. Pure: no file, no network.

A value that has parts is a list or a mapping in YAML. In a variable it is JSON, or text as people write it: words with
spaces or commas between them, folders and pairs with colons.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasGenerator, BeforeValidator, ConfigDict, Field


def keys_without(prefix: str) -> ConfigDict:
    """Return the configuration of a part of `site.yml` that names its settings without a prefix."""
    return ConfigDict(alias_generator=AliasGenerator(validation_alias=lambda name: name.removeprefix(prefix)))


def _words(value: Any) -> Any:
    return value.replace(",", " ").split() if isinstance(value, str) else value


def _folders(value: Any) -> Any:
    return [part for part in value.split(":") if part] if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(":") if part]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise ValueError(f"a pair is written NAME=VALUE, and {wrong[0] or 'nothing'} is none")
    return {name: text for name, _, text in pairs}


WORDS = BeforeValidator(_words)
FOLDERS = BeforeValidator(_folders)
PAIRS = BeforeValidator(_pairs)

Port = Annotated[int, Field(ge=1, le=65535)]
AbsolutePath = Annotated[str, Field(pattern=r"^/")]
PlainPath = Annotated[str, Field(pattern=r"^(/\.{0,2}[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")]
"""An absolute path of plain characters, with nothing like `..` in it."""
Place = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
