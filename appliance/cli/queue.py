"""What waits, in its order, and why."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.cli import config, output
from appliance.cli.options import ProjectOption
from appliance.cli.output import Format, FormatOption
from appliance.client.views import QueueEntry, Session
from common.gpu.units import format_gpus

LAST = 10**9


def queue(*, project: ProjectOption = None, form: FormatOption = Format.TABLE) -> None:
    """Show the sessions that wait, in the order of the queue, and why each does; of all your projects by default."""
    waiting = config.load().client.sessions.list(project, state=["PENDING"])
    output.show(sorted(waiting, key=_place), form, print_queue)


def _place(session: Session) -> tuple[int, str]:
    # what the scheduler has not looked at yet has no position
    return session["position"] or LAST, session["created_at"]


def print_queue(waiting: Sequence[Session] | Sequence[QueueEntry]) -> None:
    """Print sessions that wait."""
    rows = [
        (
            str(session["position"] or "-"),
            session["name"],
            session["project"],
            session["user"],
            format_gpus(session["gpu_milli"] * session["replicas"]),
            str(session["priority"]),
            output.age(session["created_at"]),
            session["reason"],
        )
        for session in waiting
    ]
    output.print_table(("#", "NAME", "PROJECT", "USER", "GPUs", "PRIORITY", "AGE", "WAITS FOR"), rows, ("WAITS FOR",))
