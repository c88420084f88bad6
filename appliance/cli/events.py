"""Events: what became of a session, from its submission on."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.cli import config, output
from appliance.cli.options import ProjectOption
from appliance.cli.output import Format, FormatOption
from appliance.cli.session import STATES, NameArgument
from appliance.client.views import SessionEvent


def events(name: NameArgument, *, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show the states that a session came to, and why, the oldest first."""
    remembered = config.load()
    found = remembered.client.sessions.events(name, project=remembered.project_or(project))
    output.show(found[::-1], form, _table)


def _table(found: Sequence[SessionEvent]) -> None:
    rows = [
        (
            output.moment(event["at"]),
            STATES.get(event["state"], event["state"].capitalize()),
            str(event["attempt"] + 1),
            event["reason"] if event["exit_code"] is None else f"{event['reason']} (exit code {event['exit_code']})",
        )
        for event in found
    ]
    output.print_table(("TIME", "STATUS", "ATTEMPT", "REASON"), rows)
