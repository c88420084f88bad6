"""Mistakes in what was typed, as errors of ours: which word, why, and what helps."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import typer

from common.errors import InputError

# typer brings its own click, or uses the one beside it; the base of this class is that of both
Mistake: type[Exception] = typer.BadParameter.__mro__[1]


def refused(mistake: Any) -> InputError:
    """Return the error that says what is wrong with the words of a command: click raised it."""
    path = mistake.ctx.command_path if mistake.ctx else "penstock"
    near = get_close_matches(_unknown(mistake), _known(mistake), n=1)
    hint = f"did you mean {near[0]}?" if near else f"see `{path} -h`"
    return InputError(_reason(mistake), where=_where(mistake), hint=hint)


def is_help(mistake: Any) -> bool:
    """Return whether it is the help of a group that was called without a command."""
    return type(mistake).__name__ == "NoArgsIsHelpError"


def _where(mistake: Any) -> str:
    parameter = getattr(mistake, "param", None)
    if parameter is None:
        return str(getattr(mistake, "option_name", ""))
    return str(parameter.opts[-1] if parameter.param_type_name == "option" else parameter.name.upper())


def _reason(mistake: Any) -> str:
    if type(mistake).__name__ == "NoSuchOption":
        return "there is no such option"
    if type(mistake).__name__ == "MissingParameter":
        return "this is required"
    # pydantic's mark on what a validator says
    text = str(mistake.message).removeprefix("Value error, ").partition(" Did you mean")[0].removesuffix(".")
    return text[:1].lower() + text[1:]


def _unknown(mistake: Any) -> str:
    """Return the name that is not known, of an option or of a command."""
    if name := getattr(mistake, "option_name", ""):
        return str(name)
    _, quote, rest = str(mistake.message).partition("No such command '")
    return rest.partition("'")[0] if quote else ""


def _known(mistake: Any) -> list[str]:
    """Return the names beside it."""
    if hasattr(mistake, "option_name"):
        return [flag for parameter in mistake.ctx.command.params for flag in parameter.opts] if mistake.ctx else []
    group = getattr(mistake.ctx and mistake.ctx.command, "list_commands", None)
    return list(group(mistake.ctx)) if group else []
