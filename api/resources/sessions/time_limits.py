"""Time limits: for how long a session runs at most. Pure."""

from __future__ import annotations

from api.tables.projects import Project
from api.tables.sessions import Kind


def limit_s(asked_s: int, kind: Kind, project: Project) -> int:
    """Return the shorter one of what it asked for and what its project gives interactive sessions; 0 is no limit."""
    given_s = project.interactive_limit_s if kind is Kind.INTERACTIVE else 0
    return min(filter(None, (asked_s, given_s)), default=0)
