"""Commands and options that hints and errors name: each is one of the command line, in the form that is written."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from appliance.cli.app import root
from tests.unit.test_house import MODULES, name, nodes

COMMAND = re.compile(r"`penstock ([^`]+)`|\b(?:run|see|with|certificate:) penstock ([a-z][^.;,]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
TOLD = {"hint", "where", "reason"}
"""Parts of an error that people read."""
FILLED = "{}"
"""What stands in the place of a value."""
NOT_OURS = {"--sort"}
"""Options of programs that are not ours."""
FOR_ALL_CLIENTS = ("api/", "appliance/agent/", "common/")
"""What is told there goes to programs and browsers, too, which have no options."""


def texts(tree: Any) -> Iterator[tuple[int, str]]:
    """Return the texts of a syntax tree with their lines; values that are filled in are left out."""
    match tree:
        case ast.Constant(value=str(text)):
            yield tree.lineno, text
        case ast.JoinedStr(values=parts):
            yield (
                tree.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED for part in parts),
            )
        case ast.AST():
            for child in ast.iter_child_nodes(tree):
                yield from texts(child)


def without_docstrings(path: Any) -> Iterator[tuple[int, str]]:
    """Return the texts of a module that are not about its code; none where it names no command."""
    if "penstock" not in (text := path.read_text()):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if hasattr(node, "body") and isinstance(node.body, list):
            node.body = [
                each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    yield from texts(tree)


@cache
def commands() -> dict[str, Any]:
    """Return the commands by name; each is made once, as that takes long."""
    whole: Any = typer.main.get_command(root)
    return {each: whole.get_command(None, each) for each in whole.list_commands(None)}


def options(command: Any) -> set[str]:
    """Return the options of a command, and of those below it."""
    found = {"--help", "-h"} | {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for below in getattr(command, "commands", None) or {}:
        found |= options(command.commands[below])
    return found


def mistake(words: str) -> str:
    """Return what is wrong with words that follow `penstock`, or nothing."""
    path, below, parts = ["penstock"], commands(), shlex.split(words.replace("…", " "))
    command: Any = None
    while below and parts and not parts[0].startswith("-"):
        if FILLED in parts[0]:
            return ""
        if parts[0] not in below:
            return f"{' '.join(path)} has no command {parts[0]}"
        command = below[parts[0]]
        path, below, parts = [*path, parts[0]], getattr(command, "commands", {}), parts[1:]
    if below and not command.invoke_without_command and "--help" not in parts:
        return f"{' '.join(path)} is a group; name one of its commands"
    own = parts[: parts.index("--")] if "--" in parts else parts
    unknown = [part for part in own if re.fullmatch(r"--?[a-z][a-z0-9-]*", part) and part not in options(command)]
    return f"{' '.join(path)} has no option {', '.join(unknown)}" if unknown else ""


def told(path: Any) -> Iterator[tuple[int, str]]:
    """Return what a module tells in errors; nothing where it has no word like an option."""
    for node in nodes(path, "--"):
        if isinstance(node, ast.keyword) and node.arg in TOLD:
            yield from texts(node.value)


def test_every_command_that_is_named_is_one() -> None:
    wrong = [
        f"{name(path)}:{line}: {words}: {found}"
        for path in MODULES
        for line, text in without_docstrings(path)
        for words in (quoted or bare for quoted, bare in COMMAND.findall(text))
        if (found := mistake(words))
    ]
    assert wrong == []


def test_every_option_that_is_named_is_one() -> None:
    known = NOT_OURS.union(*map(options, commands().values()))
    wrong = [
        f"{name(path)}:{line}: {option}"
        for path in MODULES
        for line, text in told(path)
        for option in OPTION.findall(re.sub(r"`(?!penstock)[a-z][^`]*`", "", text))
        if option not in known
    ]
    assert wrong == []


def test_what_all_clients_are_told_names_no_option() -> None:
    wrong = [
        f"{name(path)}:{line}: {text}"
        for path in MODULES
        if name(path).startswith(FOR_ALL_CLIENTS)
        for line, text in told(path)
        if OPTION.search(re.sub(r"`[^`]*`", "", text))
    ]
    assert wrong == []
