"""Expiry: until when a bundle's maker answers for it. A site warns of it and goes on serving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reservoir.contents.bundle import Bundle

# how long before its end a bundle is warned of
AHEAD = timedelta(days=30)


def end(created: datetime, days: int | None) -> str | None:
    """Return the moment at which a bundle's time ends, as its list has it; none where it has no end."""
    return None if days is None else f"{(created + timedelta(days=days)).astimezone(UTC):%FT%TZ}"


def warning(bundle: Bundle, now: datetime) -> str:
    """Return what to tell people of a bundle whose time is over or nearly so, else nothing."""
    if bundle.expires is None or datetime.fromisoformat(bundle.expires) - now > AHEAD:
        return ""
    verb = "is over since" if datetime.fromisoformat(bundle.expires) <= now else "ends on"
    return f"the time of {bundle.name} {bundle.version} {verb} {bundle.expires[:10]}; ask its maker for a newer one"
