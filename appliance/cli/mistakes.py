"""Mistakes in what was typed, as errors of ours: which word, why, and what helps."""

from __future__ import annotations

import re
import sys
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
    if parameter is None and _below_zero(mistake) and mistake.ctx:
        # amounts and times stand last
        arguments = [each for each in mistake.ctx.command.params if each.param_type_name == "argument"]
        parameter = arguments[-1] if arguments else None
    if parameter is None:
        return str(getattr(mistake, "option_name", ""))
    if parameter.param_type_name == "option":
        return str(parameter.opts[-1])
    return str(parameter.metavar or parameter.name.upper())


def _reason(mistake: Any) -> str:
    if word := _below_zero(mistake):
        return f"{word!r} is below 0, and begins like an option"
    if type(mistake).__name__ == "NoSuchOption":
        return "there is no such option"
    if type(mistake).__name__ == "MissingParameter":
        return "this is required"
    # pydantic's mark on what a validator says
    text = str(mistake.message).removeprefix("Value error, ").partition(" Did you mean")[0].removesuffix(".")
    return text[:1].lower() + text[1:]


def _below_zero(mistake: Any) -> str:
    """Return the word that was taken for an option and is an amount, such as `-5m`; empty where it is none."""
    name = str(getattr(mistake, "option_name", ""))
    if not re.match(r"-\.?\d", name):
        return ""
    return next((word for word in sys.argv[1:] if word.startswith(name)), name)


def _unknown(mistake: Any) -> str:
    """Return the name that is not known, of an option or of a command."""
    if name := getattr(mistake, "option_name", ""):
        return str(name)
    _, quote, rest = str(mistake.message).partition("No such command '")
    return rest.partition("'")[0] if quote else ""


def _known(mistake: Any) -> list[str]:
    """Return the names beside it."""
    if hasattr(mistake, "option_name"):
        parameters = mistake.ctx.command.params if mistake.ctx else []
        return [flag for each in parameters if each.param_type_name == "option" for flag in each.opts]
    group = getattr(mistake.ctx and mistake.ctx.command, "list_commands", None)
    return list(group(mistake.ctx)) if group else []
