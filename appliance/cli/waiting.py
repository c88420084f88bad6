"""Waiting until a session runs, or is not going to."""

from __future__ import annotations

import sys
import time

from appliance.client import Client
from appliance.client.views import SessionEntry

WAIT_STEP_S = 0.5
UNDER_WAY = ("PENDING", "SCHEDULED", "PREPARING", "TERMINATING")


def until_started(client: Client, session: SessionEntry, *, tell: bool = False) -> SessionEntry:
    """Return a session when its containers were started, or when it has ended; `tell` says meanwhile why it waits."""
    told = ""
    while session["state"] in UNDER_WAY:
        if tell and session["reason"] not in ("", told):
            told = session["reason"]
            print(f"{session['name']} waits: {told}", file=sys.stderr)
        time.sleep(WAIT_STEP_S)
        session = client.sessions.get(session["id"], project=session["project"])
    return session
