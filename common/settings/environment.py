"""Reading of a service's settings from the variables of an environment, and what is said where one is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from common import findings
from common.errors import InputError, Problem

SettingsT = TypeVar("SettingsT", bound="ServiceSettings")


class ServiceSettings(BaseSettings):
    """Base of a service's settings, each the variable of its prefix and its name in capital letters.

    An object is made of what it is given alone; only `load` looks at an environment.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the name is the base's
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave out every source but the arguments."""
        return (init_settings,)


class Variables(EnvSettingsSource):
    """The variables of an environment that bear the prefix of some settings, also those that are no setting."""

    def __init__(self, settings: type[ServiceSettings], environ: Mapping[str, str]) -> None:
        """Look at the environment `environ`, and not at the one of this process."""
        super().__init__(settings)
        self.env_vars = {
            name.lower(): value
            for name, value in environ.items()
            if name.startswith(self.env_prefix) and (value or not self.env_ignore_empty)
        }

    def __call__(self) -> dict[str, Any]:
        """Return the values by the names of settings; what is no setting is among them, and then refused."""
        given = {name[len(self.env_prefix) :]: value for name, value in self.env_vars.items()}
        return given | super().__call__()

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return what JSON says, or text as it is: the model splits what people write."""
        try:
            return json.loads(value) if value.startswith(("[", "{")) else value
        except ValueError:
            return value


def load(settings: type[SettingsT], environ: Mapping[str, str], *, file: str) -> SettingsT:
    """Return the settings of an environment, which `file` sets on a node.

    Raises one InputError that names every variable that is missing, wrong or unknown.
    """
    try:
        return settings(**Variables(settings, environ)())
    except ValidationError as error:
        prefix = str(settings.model_config["env_prefix"])
        raise InputError.of([_problem(detail, prefix, file) for detail in error.errors()]) from None


def _problem(detail: ErrorDetails, prefix: str, file: str) -> Problem:
    # values stay out of it: they may be secrets, and what is said here goes into logs
    where = prefix + (str(detail["loc"][0]).upper() if detail["loc"] else "*")
    if detail["type"] == "missing":
        return Problem(where, "the variable is not set", f"set it in {file}")
    if detail["type"] == "extra_forbidden":
        return Problem(where, "unknown setting", f"remove it, or correct its spelling; a node has it from {file}")
    return Problem(where, findings.reason(detail), f"correct it; a node has it from {file}")
