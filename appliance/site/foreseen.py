"""Foresight: what a dry run says of the tasks that would change a node, how, and what would be started anew after."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = "ansible.builtin.command"
"""What a dry run never does, whatever its conditions."""


@dataclass(frozen=True)
class Foreseen:
    """One task that would change its node.

    `phase` is the name of the play, `difference` has lines of a unified one, none where the task keeps a secret or says
    nothing. A `handler` takes up what others changed: it restarts or reloads.
    """

    phase: str
    task: str
    difference: str = ""
    handler: bool = False


class Foresight:
    """Gathers, by node, what tasks of a dry run say, from the events of ansible-runner."""

    def __init__(self, found: dict[str, list[Foreseen]]) -> None:
        self._found = found
        self._handlers: set[str] = set()

    def handler(self, data: Mapping[str, Any]) -> None:
        """Take note whether a task that begins is a handler."""
        if data.get("is_conditional"):
            self._handlers.add(data.get("task_uuid", ""))

    def take(self, phase: str, kind: str, data: Mapping[str, Any]) -> None:
        """Take what became of a task on a node, in an event of some `kind`.

        A handler that was called would do its work also where it fails because what it starts is not there yet.
        """
        result = data.get("res") or {}
        handler = data.get("task_uuid", "") in self._handlers
        skipped = kind == "runner_on_skipped" and data.get("task_action") == COMMAND
        put_off = handler and (skipped or (kind == "runner_on_failed" and data.get("ignore_errors")))
        if put_off or (kind == "runner_on_ok" and result.get("changed")):
            seen = Foreseen(phase, data.get("task", ""), "".join(_differences(result)), handler)
            self._found.setdefault(data.get("host", ""), []).append(seen)


def _differences(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a task's differences, and of its items'."""
    for item in result.get("results") or ():
        if isinstance(item, Mapping):
            yield from _differences(item)
    told = result.get("diff") or ()
    for each in [told] if isinstance(told, Mapping) else told:
        if prepared := each.get("prepared"):
            yield from (f"{line}\n" for line in str(prepared).splitlines())
        elif isinstance(each.get("before"), str) and isinstance(each.get("after"), str):
            yield from _unified(_path(result, each), each)


def _path(result: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Return the file that differs; of a new one that a template makes only its name is known."""
    path = told.get("before_header") or result.get("dest") or result.get("path")
    return str(path or Path(str(told.get("after_header") or "")).name.removesuffix(".j2"))


def _unified(path: str, told: Mapping[str, Any]) -> Iterator[str]:
    before, after = (str(told[name]).splitlines() for name in ("before", "after"))
    for line in difflib.unified_diff(before, after, path, path, lineterm=""):
        yield f"{line}\n"
