"""Completion of our commands by a shell: `source <(penstock completion bash)`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Your shell.")],
) -> None:
    """Print a script for your shell: source it, or put it where the shell looks for such scripts."""
    print(get_completion_script(prog_name="penstock", complete_var="_PENSTOCK_COMPLETE", shell=shell.value))
