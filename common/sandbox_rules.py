"""Rules of sandboxes as people write them, such as `socket(0=16|17):kill`: for the command line and for pages.

Only the standard library is used: the command line starts with this. Pages say what is wrong in other languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import InputError

KILL = "kill"
"""How a rule is written that ends the process."""
_RULE = re.compile(r"(?P<calls>[a-z0-9_,]+)(?:\((?P<when>[^()]+)\))?(?::(?P<effect>kill|E[A-Z0-9]+))?")
_TEST = re.compile(r"(?P<argument>\d)(?:=(?P<values>\w+(?:\|\w+)*)|&(?P<bits>\w+))")
_EXAMPLES = {"one": "mkdir,mkdirat:EROFS", "another": "socket(0=16|17):kill", "third": "clone(0&0x10000000)"}

Make = Callable[..., str]
"""Makes a text of one with names in braces, and of values for them, such as `common.sentence.Sentence`."""


def _in_english(text: str, /, **values: Any) -> str:
    return text.format_map(values)


def parse_rule(text: str, where: str, sentence: Make = _in_english) -> dict[str, Any]:
    """Return the rule that a person writes in the field `where`; raises InputError, said as `sentence` does."""
    if (found := _RULE.fullmatch(text.replace(" ", ""))) is None:
        raise _wrong(sentence("{text} is no rule", text=repr(text)), where, sentence)
    effect = found["effect"] or "EPERM"
    rule: dict[str, Any] = {"calls": found["calls"].split(","), "ends": effect == KILL}
    if effect != KILL:
        rule["errno"] = effect
    if found["when"]:
        rule["when"] = [_test(part, where, sentence) for part in found["when"].split(",")]
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


def _test(text: str, where: str, sentence: Make) -> dict[str, Any]:
    if (found := _TEST.fullmatch(text)) is None:
        raise _wrong(sentence("{text} is no test of an argument", text=repr(text)), where, sentence)
    argument = int(found["argument"])
    if found["bits"]:
        return {"argument": argument, "bits": _number(found["bits"], where, sentence)}
    return {"argument": argument, "values": [_number(value, where, sentence) for value in found["values"].split("|")]}


def _number(text: str, where: str, sentence: Make) -> int:
    try:
        return int(text, 0)
    except ValueError:
        reason = sentence("{text} is no number", text=repr(text))
        raise InputError(reason, where=where, hint=sentence("write it like 17 or 0x11")) from None


def _wrong(reason: str, where: str, sentence: Make) -> InputError:
    hint = sentence("write it like {one} or {another} or {third}", **_EXAMPLES)
    return InputError(reason, where=where, hint=hint)
