"""Sentences: English as they stand, and kept by what they are made of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from common.sentence import Moment, Sentence, Several, parts_of, said_in, sentence_of

NINE = datetime(2026, 1, 31, 9, 0, 7, 5, tzinfo=UTC)


class Backwards:
    """A language with its words the other way round."""

    def gettext(self, message: str) -> str:
        return " ".join(reversed(message.split()))

    def ngettext(self, one: str, many: str, count: int) -> str:
        return self.gettext(one if count == 1 else many)

    def moment(self, at: datetime) -> str:
        return at.strftime("<%H:%M>")

    def several(self, words: Iterable[str]) -> str:
        return " + ".join(words)


@pytest.mark.parametrize(
    ("sentence", "english", "backwards"),
    [
        (Sentence("100 % {of} it"), "100 % {of} it", "it {of} % 100"),
        (Sentence("waits for {name}", name="a {b}"), "waits for a {b}", "a {b} for waits"),
        (Sentence("{a}; {b}", a=Sentence("one two"), b=3), "one two; 3", "3 two one;"),
        (Sentence.counted("one GPU", "{count} GPUs", 1), "one GPU", "GPU one"),
        (Sentence.counted("one GPU", "{count} GPUs", 2), "2 GPUs", "GPUs 2"),
        (Sentence("on {nodes}", nodes=Several(("a", Sentence("the rest")))), "on a, the rest", "a + rest the on"),
        (Sentence("at {at}", at=Moment.at(NINE)), "at 2026-01-31 09:00 UTC", "<09:00> at"),
    ],
)
def test_a_sentence_is_english_and_is_said_in_a_language_also_when_it_was_kept(
    sentence: Sentence, english: str, backwards: str
) -> None:
    assert sentence == english
    kept = sentence_of(str(sentence), json.loads(json.dumps(sentence.parts)))
    assert kept == sentence
    assert parts_of(kept) == sentence.parts
    assert {said_in(each, Backwards()) for each in (sentence, kept, deepcopy(sentence))} == {backwards}


def test_a_moment_has_seconds_where_they_matter_in_utc() -> None:
    seoul = NINE.astimezone(timezone(timedelta(hours=9)))
    assert f"{Moment.at(seoul)}" == "2026-01-31 09:00 UTC"
    assert f"{Moment.at(seoul, seconds=True)}" == "2026-01-31 09:00:07 UTC"
    assert f"{Moment.at(seoul.replace(second=0), seconds=True)}" == "2026-01-31 09:00 UTC"


def test_a_bare_text_stays_as_it_is() -> None:
    assert parts_of("as it is") == {}
    assert type(sentence_of("as it is", {})) is str
    assert said_in("as it is", Backwards()) == "as it is"


def nested(deep: int) -> Any:
    """Parts within parts."""
    parts: Any = {"text": "a", "values": {}, "said": "a"}
    for _ in range(deep):
        parts = {"text": "{of}", "values": {"of": parts}, "said": "a"}
    return parts


@pytest.mark.parametrize(
    "parts",
    [
        {"text": "waits for {name}", "values": {}},
        {"text": "waits for {name}", "values": {"name": "b"}},
        {"text": "waits for {name.__class__.x}", "values": {"name": "a"}},
        {"text": "waits for {", "values": {"name": "a"}},
        {"text": "{at}", "values": {"at": {"at": "yesterday"}}},
        {"text": "{of}", "values": {"of": {"text": "waits for a", "values": {}}}},
        {"text": "one", "values": {}, "many": "{count} of {x}", "count": 2},
        {"text": "one", "values": {}, "many": 3, "count": "few"},
        {"text": "one", "values": {}, "many": "more", "count": float("inf")},
        {"text": "{of}", "values": {"of": nested(5000)}},
        {"text": 3, "values": {}},
        {"text": "waits for {name}", "values": None},
        {"values": {}},
        {"text": "waits for a"},
        ["waits for a"],
        "waits for a",
    ],
)
def test_a_reason_that_its_parts_do_not_make_stays_as_it_stands(parts: Any) -> None:
    kept = sentence_of("waits for a", parts)
    assert type(kept) is str
    assert said_in(kept, Backwards()) == "waits for a"
