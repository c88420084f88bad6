"""Denied calls: what the sandbox of a session denied."""

from __future__ import annotations

from appliance.cli import config, output
from appliance.cli.options import ProjectOption
from appliance.cli.output import Format, FormatOption
from appliance.cli.session import NameArgument
from appliance.client.views import DeniedCalls

HEAD = ("LAST", "CONTAINER", "PROCESS", "PID", "CALL", "EFFECT", "COUNT", "FIRST")


def denied_calls(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show which system calls a session's sandbox denied (administrators, auditors, managers of the project)."""
    remembered = config.load()
    shown = remembered.client.sessions.denied_calls(name, project=remembered.project_or(project))
    output.show(shown, form, _table)


def _table(shown: DeniedCalls) -> None:
    if not shown["sandbox"]:
        print("The session is in no sandbox.")
        return
    if shown["series"]:
        rows = [
            (
                output.moment(series["last_at"]),
                str(series["rank"]),
                series["process"] or "-",
                str(series["pid"]),
                series["call"],
                series["effect"],
                str(series["count"]),
                output.moment(series["first_at"]),
            )
            for series in shown["series"]
        ]
        output.print_table(HEAD, rows)
    print(f"The sandbox {shown['sandbox']} denied {shown['denied']} system calls.")
