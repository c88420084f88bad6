"""Lines of the audit log before they are sealed: what somebody did with what that changed, and never too long. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.resources.audit.chain import Entry
from api.resources.audit.repository import Pending
from common import request_id

CHANGES = 100
"""So many changes of one request are told; of the others that there are more."""
MAX_VALUE = 4096
"""Characters of a value, before or after a change, that is told whole."""
MAX_LINE = 64 * 1024
"""Characters of the changes of a line: it has to fit in one message to another server."""
AT_ONCE = 1 << 20
"""Characters of lines that are written together; one that is longer comes alone."""


def by_itself(**told: Any) -> Entry:
    """Return the entry of what nobody has asked for at an address: what the clock or the leader does."""
    return {
        "user": "",
        "role": "",
        "domain": None,
        "credential": "",
        "address": "",
        "project": None,
        "result": "done",
        "reason": "",
        "request": request_id.current(),
        **told,
    }


def whole(pending: Pending) -> Entry:
    """Return an entry with its changes, with the object's name where only these tell it, and with their project.

    What was changed is true, whatever the request said of it.
    """
    entry, told = pending.entry, _fitting(pending.changes[:CHANGES])
    kind = entry["object"].partition("/")[0].replace("-", "_")
    subject: dict[str, str] = next((change["subject"] for change in told if change["kind"] == kind), {})
    if entry["method"] == "POST" and "/" not in entry["object"] and subject.get("name"):
        entry = {**entry, "object": f"{entry['object']}/{subject['name']}"}
    entry = {**entry, "project": subject.get("project", entry["project"])}
    domains = {domain for change in told for domain in domains_of(change)} | {entry.get("domain")}
    more = {"more_changes": True} if len(pending.changes) > len(told) else {}
    entry = {**entry, "domains": sorted(filter(None, domains)), "changes": told, **more}
    return {**entry, "nodes": nodes_of(entry)}


def domains_of(change: Mapping[str, Any]) -> set[str | None]:
    """Return the domains of a changed row: its present one, and where it has come from another one, that.

    A domain is its own.
    """
    named = "name" if change["kind"] == "domains" else "domain"
    return {values.get(named) for values in (change["subject"], change["before"], change["after"]) if values}


def first_of(entries: Sequence[tuple[str, Entry]]) -> Sequence[tuple[str, Entry]]:
    """Return as many of the entries, from the first one on, as are written together."""
    size = 0
    for place, (_, entry) in enumerate(entries):
        size += len(json.dumps(entry))
        if place and size > AT_ONCE:
            return entries[:place]
    return entries


def nodes_of(entry: Entry) -> list[str]:
    """Return the nodes that somebody's doing touched: those it was about, and those where its session runs."""
    kind, _, rest = entry["object"].partition("/")
    named = {rest.partition("/")[0]} if kind == "nodes" else set()
    return sorted({*entry.get("nodes", ()), *named, *touched(entry["changes"])} - {""})


def touched(changes: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Yield the nodes of changes, as each of these tells them."""
    for change in changes:
        subject = change["subject"]
        yield subject.get("node", "")
        yield from subject.get("nodes", "").split()
        if change["kind"] == "nodes":
            yield subject.get("name", "")
        if change["kind"] == "repair_runs":
            yield (change["after"] or change["before"] or {}).get("node") or ""


def _fitting(changes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes that fit in a line, the first ones, with long values cut."""
    told: list[dict[str, Any]] = []
    size = 0
    for change in changes:
        short = {**change, "before": _short(change["before"]), "after": _short(change["after"])}
        size += len(json.dumps(short))
        if told and size > MAX_LINE:
            break
        told.append(short)
    return told


def _short(values: dict[str, Any] | None) -> dict[str, Any] | None:
    return values and {name: _cut(value) for name, value in values.items()}


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
