"""The root of the command line: every group is imported only when it is used, so that `penstock list` starts fast."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from reservoir.errors import PenstockError, UnavailableError

COMMANDS = {
    # name: (module:attribute, one line of help)
    "login": ("appliance.cli.account:login", "Log in to a control API and remember it."),
    "logout": ("appliance.cli.account:logout", "Forget the control API and revoke its key."),
    "project": ("appliance.cli.project:app", "Projects: list, show, create, delete, set the current one."),
    "user": ("appliance.cli.user:app", "Users: list, create, delete, set a password."),
    "submit": ("appliance.cli.session:submit", "Submit a session."),
    "list": ("appliance.cli.session:list_sessions", "List sessions."),
    "get": ("appliance.cli.session:get", "Show one session."),
    "logs": ("appliance.cli.session:logs", "Show or follow a session's log."),
    "bash": ("appliance.cli.session:bash", "Open a shell in a running session."),
    "delete": ("appliance.cli.session:delete", "Delete sessions."),
    "node": ("appliance.cli.node:app", "Nodes and their GPUs."),
    "image": ("appliance.cli.image:app", "Images that sessions may use."),
    "reservoir": ("appliance.cli.reservoir:app", "Bundles: lock, build, verify, import, publish."),
    "site": ("appliance.cli.site:app", "The site: check, deploy, verify, report."),
    "lab": ("appliance.cli.lab:app", "Rehearse a site in containers: up, down, status."),
}


class LazyGroup(TyperGroup):
    """A group that knows the names of its commands and imports one when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return one command, or None where there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        target, summary = COMMANDS[cmd_name]
        module, attribute = target.split(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            command = typer.main.get_command(found)
        else:
            single = typer.Typer(add_completion=False)
            single.command(cmd_name, context_settings={"help_option_names": ["-h", "--help"]})(found)
            command = typer.main.get_command(single)
        command.name = cmd_name
        command.short_help = summary
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


root = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@root.callback()
def _root() -> None:
    """Penstock: one disk into a working GPU cluster inside a closed network."""


def main() -> None:
    """Run the command line; an error of ours becomes its text on standard error and its exit code."""
    try:
        root(prog_name="penstock")
    except PenstockError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        cure = "check the path, its permissions, and the disk or network behind it"
        print(f"error: {error.filename or 'this machine'}: {error.strerror or error}. Cure: {cure}", file=sys.stderr)
        sys.exit(UnavailableError.exit_code)
