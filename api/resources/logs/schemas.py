"""Answers about the logs of the site."""

from __future__ import annotations

from api.resources.schemas import View


class LogEntryView(View):
    """A line that a service of a node wrote, and what it is about; where that is several things, they are all told.

    `node` has sent it, by its certificate. `host` is the name that the line itself gives, where that is another one.
    """

    time: str
    node: str
    host: str
    unit: str
    level: str
    message: str
    request: str
    session: str
    user: str
