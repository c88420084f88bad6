"""Rules of sandboxes as people write them, such as `socket(0=16|17):kill`: for the command line and for pages.

Only the standard library is used: the command line starts with this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from common.errors import InputError

KILL = "kill"
"""How a rule is written that ends the process."""
HINT = "write it like mkdir,mkdirat:EROFS or socket(0=16|17):kill or clone(0&0x10000000)"
_RULE = re.compile(r"(?P<calls>[a-z0-9_,]+)(?:\((?P<when>[^()]+)\))?(?::(?P<effect>kill|E[A-Z0-9]+))?")
_TEST = re.compile(r"(?P<argument>\d)(?:=(?P<values>\w+(?:\|\w+)*)|&(?P<bits>\w+))")


def parse_rule(text: str, where: str) -> dict[str, Any]:
    """Return the rule that a person writes in the field `where`; raises InputError."""
    if (found := _RULE.fullmatch(text.replace(" ", ""))) is None:
        raise InputError(f"{text!r} is no rule", where=where, hint=HINT)
    effect = found["effect"] or "EPERM"
    rule: dict[str, Any] = {"calls": found["calls"].split(","), "ends": effect == KILL}
    if effect != KILL:
        rule["errno"] = effect
    if found["when"]:
        rule["when"] = [_test(part, where) for part in found["when"].split(",")]
    return rule


def format_rule(rule: Mapping[str, Any]) -> str:
    """Return a rule as a person writes it."""
    tests = [
        f"{test['argument']}&{test['bits']:#x}"
        if test["bits"]
        else f"{test['argument']}={'|'.join(map(str, test['values']))}"
        for test in rule["when"]
    ]
    when = f"({','.join(tests)})" if tests else ""
    return f"{','.join(rule['calls'])}{when}:{KILL if rule['ends'] else rule['errno']}"


def _test(text: str, where: str) -> dict[str, Any]:
    if (found := _TEST.fullmatch(text)) is None:
        raise InputError(f"{text!r} is no test of an argument", where=where, hint=HINT)
    argument = int(found["argument"])
    if found["bits"]:
        return {"argument": argument, "bits": _number(found["bits"], where)}
    return {"argument": argument, "values": [_number(value, where) for value in found["values"].split("|")]}


def _number(text: str, where: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is no number", where=where, hint="write it like 17 or 0x11") from None
