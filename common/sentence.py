"""Sentences that know what they are made of: English as they stand, translated for whoever reads another language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

from pydantic import ValidatorFunctionWrapHandler, WrapValidator

Parts = dict[str, Any]
"""A sentence as JSON: its `text`, and the `values` of the names in it; `more` and `count` where that says how many."""


class Language(Protocol):
    """What a sentence needs of a language."""

    def gettext(self, message: str) -> str:
        """Return a text in the language."""

    def ngettext(self, one: str, many: str, count: int) -> str:
        """Return a text about so many things in the language."""

    def moment(self, at: datetime) -> str:
        """Return a moment as it is written."""

    def several(self, words: Iterable[str]) -> str:
        """Return several words as a list."""


class Moment(datetime):
    """A moment of a sentence; in English as `2026-01-31 09:00 UTC`, with seconds where it has some."""

    def __format__(self, form: str) -> str:
        """Return it as it is written in English."""
        return f"{self.astimezone(UTC).strftime('%Y-%m-%d ' + clock_form(self))} UTC"

    @classmethod
    def at(cls, moment: datetime, *, seconds: bool = False) -> Moment:
        """Return a moment as one of a sentence, to the minute or to the second."""
        exact = cls.fromtimestamp(moment.timestamp(), UTC).replace(microsecond=0)
        return exact if seconds else exact.replace(second=0)


def clock_form(at: datetime) -> str:
    """Return how the time of day of a moment is written, for `strftime`."""
    return "%H:%M:%S" if at.second else "%H:%M"


class Several(tuple[str, ...]):
    """Several words or sentences, one after another."""

    __slots__ = ()

    def __format__(self, form: str) -> str:
        """Return them with commas."""
        return ", ".join(self)


class Sentence(str):
    """A text with names in braces, and values for them: texts, numbers, moments, several texts, other sentences.

    It is the English text, so that who compares or writes it needs to know nothing of this. Texts are found in the
    source by the name of this class: each is written where it is made.
    """

    __slots__ = ("_count", "_many", "_text", "_values")
    _text: str
    _values: Mapping[str, Any]
    _many: str
    _count: int

    def __new__(cls, text: str, /, **values: Any) -> Sentence:
        """Make a sentence."""
        made = super().__new__(cls, _filled(text, values))
        made._text, made._values, made._many, made._count = text, values, "", 0
        return made

    @classmethod
    def counted(cls, one: str, many: str, count: int, /, **values: Any) -> Sentence:
        """Make a sentence about so many things, which has other words for one than for many."""
        made = str.__new__(cls, (one if count == 1 else many).format_map({"count": count, **values}))
        made._text, made._values, made._many, made._count = one, {"count": count, **values}, many, count
        return made

    @property
    def parts(self) -> Parts:
        """What it is made of, as JSON."""
        many = {"many": self._many, "count": self._count} if self._many else {}
        return {"text": self._text, "values": {name: _part(value) for name, value in self._values.items()}} | many

    def said_in(self, language: Language) -> str:
        """Return it in a language."""
        text = language.ngettext(self._text, self._many, self._count) if self._many else language.gettext(self._text)
        return _filled(text, {name: _said(value, language) for name, value in self._values.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made."""
        return sentence_of, (str(self), self.parts)


_NO_SENTENCE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What comes of parts that make no sentence."""


def _kept(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, Sentence) else check(value)


Said = Annotated[str, WrapValidator(_kept)]
"""A field of a model: a text that may be a sentence, and stays one."""


def parts_of(text: str) -> Parts:
    """Return what a text is made of; nothing where it is no sentence."""
    return text.parts if isinstance(text, Sentence) else {}


def sentence_of(text: str, parts: Any) -> str:
    """Return the sentence that a text was, by what it was made of; the text itself where that does not make it."""
    if not parts:
        return text
    try:
        values = {name: _value(value) for name, value in parts["values"].items()}
        many = (parts["many"], int(parts["count"])) if "many" in parts else ()
        made = Sentence.counted(parts["text"], *many, **values) if many else Sentence(parts["text"], **values)
    except _NO_SENTENCE:
        return text
    # what is kept may be of another release, or have lost something: a reader is told what was written
    return made if made == text else text


def said_in(text: str, language: Language) -> str:
    """Return a text in a language, where it is a sentence; else as it is."""
    return text.said_in(language) if isinstance(text, Sentence) else text


def halves(whole: str) -> tuple[str, str]:
    """Return reason and hint of a text that gives both, with `; ` between them; the hint is empty where it gives none.

    Other languages part it elsewhere or not at all: there the reason says the whole sentence, and the hint nothing.
    """
    reason, _, hint = whole.partition("; ")
    if not isinstance(whole, Sentence) or not hint:
        return whole, ""
    return _in_english(reason, whole), _in_english(hint, "")


def _in_english(text: str, otherwise: str) -> Sentence:
    """Return a text that readers of pages are told as another one."""
    made = str.__new__(Sentence, text)
    made._text, made._values, made._many, made._count = "{said}", {"said": otherwise}, "", 0
    return made


def _filled(text: str, values: Mapping[str, Any]) -> str:
    return text.format_map(values) if values else text


def _part(value: Any) -> Any:
    if isinstance(value, Sentence):
        return {**value.parts, "said": str(value)}
    if isinstance(value, datetime):
        return {"at": value.isoformat()}
    if isinstance(value, tuple):
        return [_part(each) for each in value]
    return value


def _value(part: Any) -> Any:
    if isinstance(part, dict):
        return Moment.fromisoformat(part["at"]) if "at" in part else sentence_of(part["said"], part)
    if isinstance(part, list):
        return Several(_value(each) for each in part)
    return part


def _said(value: Any, language: Language) -> str:
    if isinstance(value, Sentence):
        return value.said_in(language)
    if isinstance(value, datetime):
        return language.moment(value)
    if isinstance(value, tuple):
        return language.several(_said(each, language) for each in value)
    return str(value)
