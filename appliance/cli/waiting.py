"""Waiting until a session runs, or is not going to."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from appliance.cli.output import plain
from appliance.client import Client
from appliance.client.views import SessionEntry

WAIT_STEP_S = 0.5
UNDER_WAY = ("PENDING", "SCHEDULED", "PREPARING", "TERMINATING")


def until_started(client: Client, session: SessionEntry) -> SessionEntry:
    """Return a session when its containers were started, or when it has ended; say meanwhile why it waits."""
    told = ""
    while session["state"] in UNDER_WAY:
        if session["reason"] not in ("", told):
            told = session["reason"]
            print(f"{session['name']} waits: {plain(told)}", file=sys.stderr)
        time.sleep(WAIT_STEP_S)
        session = client.sessions.get(session["id"], project=session["project"])
    return session


def until_all_started(client: Client, sessions: Sequence[SessionEntry]) -> list[SessionEntry]:
    """Return sessions that were just asked for when all were started; who stops waiting hears that they stay."""
    try:
        return [until_started(client, session) for session in sessions]
    except KeyboardInterrupt:
        names = [session["name"] for session in sessions]
        stay, them = ("stay", "them") if len(names) > 1 else ("stays", "it")
        told = f"{', '.join(names)} {stay} in the queue; `penstock delete {' '.join(names)}` takes {them} out"
        print(told, file=sys.stderr)
        raise
