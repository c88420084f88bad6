"""Lines of journals, in which any node and any user of a node may have written anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.resources.logs import search
from api.resources.logs.schemas import LogEntryView

ENTRY: dict[str, Any] = {
    "__CURSOR": "s=1;i=1",
    "__REALTIME_TIMESTAMP": "1767225600000000",
    "_HOSTNAME": "worker1",
    "_SYSTEMD_UNIT": "penstock-agent.service",
    "PRIORITY": "6",
    "MESSAGE": "told",
}


def read(*entries: dict[str, Any] | str) -> list[LogEntryView]:
    printed = "".join(
        f"{each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}\n" for each in entries
    )
    return [entry for _, entry in search.entries(printed, {"1": "worker1"}) if entry]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_a_line_ends_where_journalctl_has_ended_it(sign: str) -> None:
    assert [entry.message for entry in read(ENTRY | {"MESSAGE": f"GET /{sign}x"}, ENTRY)] == [f"GET /{sign}x", "told"]


@pytest.mark.parametrize("level", ["²", "٣", "8", "-1", "", "9" * 5000, [194, 178], ["3", "4"], None])
def test_a_level_is_one_of_eight_words(level: object) -> None:
    assert read(ENTRY | {"PRIORITY": level})[0].level == "info"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([104, 105], "hi"),
        ([255, 104], "\ufffdh"),
        (["a", "b", "a"], "a b"),
        ([[104, 105], "a", None], "hi a"),
        ([[104, 105], [256]], "hi"),
        ([300, "a"], "a"),
        ([], ""),
        ({"a": "b"}, ""),
        (7, ""),
        (None, ""),
    ],
)
def test_a_field_is_text_bytes_or_several(value: object, shown: str) -> None:
    (entry,) = read(ENTRY | {"PENSTOCK_USER": value})
    assert entry.user == shown


@pytest.mark.parametrize(
    "broken",
    [
        '{"__CURSOR": "s=1',
        "[]",
        "7",
        ENTRY | {"__REALTIME_TIMESTAMP": "9" * 30},
        ENTRY | {"__REALTIME_TIMESTAMP": "²"},
        ENTRY | {"__REALTIME_TIMESTAMP": ["1", "2"]},
        {"MESSAGE": "neither time nor cursor"},
    ],
)
def test_a_line_that_cannot_be_read_stands_among_the_others(broken: dict[str, Any] | str) -> None:
    assert [entry.message for entry in read(ENTRY, broken, ENTRY)] == ["told", "(cannot be read)", "told"]
