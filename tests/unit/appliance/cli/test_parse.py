"""Amounts and times as people write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from appliance.cli import output, parse
from common.errors import InputError


@pytest.fixture
def _seoul(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "KST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d12h", 129600), ("1D", 86400), ("0s", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse.duration(text, "TIME") == seconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (90, "1m 30s"), (7200, "2h"), (129600, "1d 12h")])
def test_durations_are_shown_in_their_largest_units(seconds: int, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "mib"), [("512M", 512), ("4G", 4096), ("1.5g", 1536), ("2GiB", 2048), ("1T", 1048576)]
)
def test_sizes(text: str, mib: int) -> None:
    assert parse.size_mib(text, "--memory") == mib


@pytest.mark.parametrize(("text", "milli"), [("4", 4000), ("0.5", 500), ("0", 0)])
def test_cores(text: str, milli: int) -> None:
    assert parse.cpu_milli(text, "--cpu") == milli


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        *((parse.duration, text) for text in ("", "5", "h", "2h ago", "-1h", "1.5h", "9999999999s")),
        *((parse.size_mib, text) for text in ("", "4", "G", "-1G", "4X", "1e3G")),
        *((parse.cpu_milli, text) for text in ("", "-1", "many", "0.0001", "NaN", "Infinity", "1e20")),
        *((parse.moment, text) for text in ("", "tomorrow", "2027-13-01", "+2", "+", "9999-12-31T23:00:00-23:00")),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_hint(parser: Callable[[str, str], object], text: str) -> None:
    with pytest.raises(InputError) as caught:
        parser(text, "FIELD")
    assert caught.value.problems[0].where == "FIELD"
    assert caught.value.problems[0].hint


@pytest.mark.usefixtures("_seoul")
class TestMoments:
    """A time without a zone is one of the user's."""

    def test_a_date_begins_or_ends_the_day(self) -> None:
        assert parse.moment("2027-12-31", "--from") == "2027-12-31T00:00:00+09:00"
        assert parse.moment("2027-12-31", "--until", ends=True) == "2028-01-01T00:00:00+09:00"

    def test_a_time_of_day_is_meant_as_it_stands(self) -> None:
        assert parse.moment("2027-12-31T18:00", "--until", ends=True) == "2027-12-31T18:00:00+09:00"
        assert parse.moment("2027-12-31 18:00", "--until", ends=True) == "2027-12-31T18:00:00+09:00"
        assert parse.moment("2027-12-31T18:00Z", "--from") == "2028-01-01T03:00:00+09:00"

    def test_from_now(self) -> None:
        now = datetime(2027, 1, 1, tzinfo=UTC)
        assert parse.moment("+1h30m", "--start-at", now=now) == "2027-01-01T01:30:00+00:00"


@pytest.mark.parametrize(("text", "parts"), [("python:3.11", ("python", "3.11")), ("a:b:c", ("a", "b:c"))])
def test_an_image_has_a_name_and_a_tag(text: str, parts: tuple[str, str]) -> None:
    assert parse.image(text) == parts
