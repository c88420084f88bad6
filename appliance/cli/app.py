"""The root of the command line: every group is imported only when it is used, so that `penstock list` starts fast."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from appliance.cli import mistakes
from appliance.cli.options import HELP
from common.errors import InputError, PenstockError, UnavailableError

COMMANDS = {
    # name: (module:attribute, one line of help)
    "login": ("appliance.cli.account:login", "Log in to a control API and remember it."),
    "logout": ("appliance.cli.account:logout", "Forget the control API and revoke its key."),
    "language": ("appliance.cli.account:language", "Choose the language in which the console speaks to you."),
    "apikey": ("appliance.cli.api_key:app", "Your API keys: list, create, revoke."),
    "submit": ("appliance.cli.submit:submit", "Submit a session."),
    "list": ("appliance.cli.session:list_sessions", "List sessions."),
    "get": ("appliance.cli.session:get", "Show one session."),
    "events": ("appliance.cli.events:events", "Show what became of a session, and why."),
    "logs": ("appliance.cli.logs:logs", "Show a session's log, or those of the site's services."),
    "bash": ("appliance.cli.enter:bash", "Open a shell in a session."),
    "exec": ("appliance.cli.enter:execute", "Run a command in a session."),
    "cp": ("appliance.cli.enter:cp", "Copy files and folders into a session, or out of it."),
    "restart": ("appliance.cli.session:restart", "Start a session again, with new containers."),
    "extend": ("appliance.cli.session:extend", "Put off the end of a session with a time limit."),
    "resize": ("appliance.cli.session:resize", "Change the share of a GPU that a running session has."),
    "metrics": ("appliance.cli.metrics:metrics", "Show what a session used of its GPUs."),
    "denied-calls": ("appliance.cli.denied_calls:denied_calls", "Show which system calls a session's sandbox denied."),
    "access": ("appliance.cli.session:access", "Change who sees a session."),
    "priority": ("appliance.cli.session:priority", "Change which of your project's waiting sessions goes first."),
    "delete": ("appliance.cli.session:delete", "Delete sessions."),
    "queue": ("appliance.cli.queue:queue", "Show what waits, in its order, and why."),
    "summary": ("appliance.cli.summary:summary", "Show what you run, your limits, and where there is room."),
    "overview": ("appliance.cli.overview:overview", "Show the whole site at a glance: GPUs, projects, what waits."),
    "project": ("appliance.cli.project:app", "Projects: list, show, create, update, delete, set the current one."),
    "volume": ("appliance.cli.volume:app", "Volumes: storage of projects, that sessions mount by --pvc."),
    "group": ("appliance.cli.group:app", "Resource groups: nodes, and who may use them."),
    "image": ("appliance.cli.image:app", "Images that sessions may use."),
    "preset": ("appliance.cli.preset:app", "Amounts for sessions by name."),
    "notices": ("appliance.cli.notices:app", "What everybody is told: list, create, end."),
    "sandbox": ("appliance.cli.sandbox:app", "What programs of sessions may not ask of the kernel."),
    "node": ("appliance.cli.node:app", "Nodes and their GPUs: look, drain, maintenance."),
    "user": ("appliance.cli.user:app", "Users: list, create, update, disable, delete, passwords."),
    "policy": ("appliance.cli.policy:app", "What a user may have at once."),
    "domain": ("appliance.cli.domain:app", "Domains: users and projects with administrators of their own."),
    "accounting": ("appliance.cli.accounting:accounting", "Who held how much, and for how long."),
    "audit": ("appliance.cli.audit:app", "The audit log: who did what, and whether it is as it was written."),
    "doctor": ("appliance.cli.doctor:app", "Say what is not well at the site, and what to do about it."),
    "health": ("appliance.cli.health:app", "Checks of nodes and of the site: history, acknowledge, clear."),
    "scheduler": ("appliance.cli.scheduler:app", "The scheduler's cycles, for a look afterwards."),
    "completion": ("appliance.cli.completion:completion", "Print what makes a shell complete our commands."),
    "reservoir": ("appliance.cli.reservoir:app", "Bundles: lock, build, verify, import, publish."),
    "site": ("appliance.cli.site:app", "The site: check, deploy, verify, report."),
    "repair": ("appliance.cli.repair:app", "Repairs of known issues: list, show, run, history."),
    "backup": ("appliance.cli.backup:app", "Backups of the site: now, list, verify, restore, drill."),
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
            # not get_command: it would offer to write into the files of the user's shell
            command: Any = typer.main.get_group(found)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name, context_settings=HELP)(found)
            command = typer.main.get_command(single)
        command.name = cmd_name
        command.short_help = summary
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return what a shell may complete, without importing any command."""
        # typer brings its own click, or uses the one beside it; this name is the same for both
        from typer.core import CompletionItem  # type: ignore[attr-defined]

        return [
            CompletionItem(name, help=summary) for name, (_, summary) in COMMANDS.items() if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


root = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP
)


@root.callback()
def _root() -> None:
    """Penstock: one disk into a working GPU cluster inside a closed network."""


def main() -> None:
    """Run the command line; an error of ours becomes its text on standard error and its exit code."""
    # lets the root answer a shell that completes; the options that it returns would write into the user's files
    typer.main.get_install_completion_arguments()
    try:
        code = _run()
    except PenstockError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        code = error.exit_code
    except typer.Abort:
        print("aborted", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 141
    except OSError as error:
        hint = "check the path, its permissions, and the disk or network behind it"
        print(f"error: {error.filename or 'this machine'}: {error.strerror or error}. Hint: {hint}", file=sys.stderr)
        code = UnavailableError.exit_code
    sys.exit(code)


def _run() -> int:
    """Run what was typed and return its exit code; raises InputError where that is no command of ours."""
    try:
        code = root(prog_name="penstock", standalone_mode=False)
    except mistakes.Mistake as mistake:
        if not mistakes.is_help(mistake):
            raise mistakes.refused(mistake) from None
        print(mistake, file=sys.stderr)
        return InputError.exit_code
    return code if isinstance(code, int) else 0
