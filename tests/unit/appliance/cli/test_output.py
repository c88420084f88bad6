"""Tables, ages and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from appliance.cli.output import age, plain, print_fields, print_table, table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEAD = ("NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs")
LONG = (
    "a" * 20,
    "ContainerCreating",
    "12m",
    "worker1",
    "tensorflow:20.01.0-py3",
    "Interactive",
    "t" * 20,
    "u" * 20,
    "1",
)


def test_rows_stay_on_one_line_of_a_narrow_terminal() -> None:
    lines = table(HEAD, [LONG, LONG], 80)
    assert max(map(len, lines)) <= 80
    assert "…" in lines[1]
    assert lines[1].split()[0].startswith("aaaaaa")
    assert lines[1].endswith("1")


def test_nothing_is_cut_without_a_limit_or_with_room() -> None:
    assert "…" not in "".join(table(HEAD, [LONG], None))
    assert table(("A", "B"), [("long enough", "x")], 80) == ["A            B", "long enough  x"]


def test_too_narrow_a_terminal_keeps_cells_readable() -> None:
    lines = table(HEAD, [LONG], 20)
    assert all(len(cell) >= 7 for cell in lines[1].split("  ") if "…" in cell)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-5, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (172800, "2d")],
)
def test_age(seconds: int, text: str) -> None:
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == text


def test_what_others_have_written_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Titles, colours, a clipboard, and letters that run backwards."""
    print_fields([("Command", "/\x1b]0;title\x07\x9b31m\u202egnp.exe")])
    print_table(("NAME", "REASON"), [("a", "line\nbreak 손실 é")])
    assert capsys.readouterr().out.splitlines() == [
        r"Command: /\x1b]0;title\x07\x9b31m\u202egnp.exe",
        "NAME  REASON",
        r"a     line\nbreak 손실 é",
    ]


@pytest.mark.parametrize("sign", ["\u200b", "\u2028", "\u2029", "\U000e0041", "\ufeff", "\ud800", "\x85", "\u200d"])
def test_what_nobody_sees_is_named(sign: str) -> None:
    assert plain(f"a{sign}b") == f"a{sign.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize("text", ["می‌خواهم", "क्‍ष", "👩‍💻", "손실 é", "e\u0301", "日本\u3000語", "1\u00a0000 €"])
def test_words_of_all_languages_are_shown(text: str) -> None:
    assert plain(text) == text
