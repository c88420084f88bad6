"""What the administrator's manual shows, for tests that do it."""

from __future__ import annotations

import shlex
from pathlib import Path

from common.sandbox import SandboxRule
from common.sandbox_rules import parse_rule

MANUAL = Path(__file__).parents[1] / "docs/admin.md"


def documented() -> list[tuple[str, list[SandboxRule]]]:
    """Return the sandboxes of the administrator's manual, by their lines."""
    found = []
    for line in MANUAL.read_text().splitlines():
        if line.startswith("penstock sandbox create"):
            words = shlex.split(line, comments=True)
            denied = [words[at + 1] for at, word in enumerate(words) if word == "--deny"]
            found.append((line, [SandboxRule.model_validate(parse_rule(text, "--deny")) for text in denied]))
    return found
