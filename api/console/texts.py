"""Texts of the console in the reader's language: all that a page says goes through here.

The names are those that gettext's tools look for, in templates and in code. Texts are written in English; for each
other language there is a catalogue in `locale/`, which `python -m tools.translations` completes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from gettext import NullTranslations
from io import BytesIO
from pathlib import Path

from babel import Locale
from babel.dates import format_date
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal
from babel.support import Translations
from starlette.requests import HTTPConnection

from api.tables.users import Language
from common import sentence

FOLDER = Path(__file__).parent / "locale"
NAMES = {
    Language.ENGLISH: "English",
    Language.KOREAN: "한국어",
    Language.JAPANESE: "日本語",
    Language.CHINESE: "简体中文",
    Language.THAI: "ไทย",
}
"""What the languages are called by those who speak them."""
MAX_WISHES = 20
"""So many languages of a browser are looked at."""


@dataclass(frozen=True)
class Speech:
    """A language with its catalogue, and with how it writes numbers and moments."""

    language: Language
    texts: NullTranslations
    locale: Locale

    def gettext(self, message: str) -> str:
        """Return a text in the language."""
        return self.texts.gettext(message)

    def ngettext(self, one: str, many: str, count: int) -> str:
        """Return a text about so many things in the language."""
        return self.texts.ngettext(one, many, count)

    def moment(self, at: datetime) -> str:
        """Return a moment in UTC, with seconds where it has some."""
        return f"{self._day(at)} {at.astimezone(UTC).strftime(sentence.clock_form(at))} UTC"

    def instant(self, at: datetime) -> str:
        """Return a moment to the second, in UTC."""
        return f"{self._day(at)} {at.astimezone(UTC):%H:%M:%S} UTC"

    def number(self, value: float) -> str:
        """Return a number with at most three digits behind its point."""
        # lists have thousands of small ones, which all our languages write alike
        return str(value) if type(value) is int and 0 <= value < 1000 else format_decimal(value, locale=self.locale)

    def money(self, value: Decimal) -> str:
        """Return an amount of money with two digits behind its point, and without its currency."""
        return str(format_decimal(value, "#,##0.00", locale=self.locale))

    def several(self, words: Iterable[str]) -> str:
        """Return several words as a list."""
        return self.gettext(", ").join(words)

    def _day(self, at: datetime) -> str:
        # people of many countries read English, and no two of them write days alike
        form = "yyyy-MM-dd" if self.language is Language.ENGLISH else "medium"
        return str(format_date(at.astimezone(UTC), form, locale=self.locale))


@cache
def speech(language: Language) -> Speech:
    """Return how a language is spoken."""
    locale = Locale.parse(language.value)
    if language is Language.ENGLISH:
        return Speech(language, NullTranslations(), locale)
    with (FOLDER / f"{language.value}.po").open("rb") as file:
        catalogue = read_po(file, language.value)
    compiled = BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return Speech(language, Translations(compiled), locale)


current: ContextVar[Language] = ContextVar("language", default=Language.ENGLISH)
"""The language of the request."""


def spoken() -> Speech:
    """Return how the reader's language is spoken."""
    return speech(current.get())


def gettext(message: str) -> str:
    """Return a text in the reader's language."""
    return spoken().gettext(message)


def ngettext(one: str, many: str, count: int) -> str:
    """Return a text about so many things, with their number, as the reader's language writes both."""
    speech = spoken()
    return speech.ngettext(one, many, count).replace("%(num)d", speech.number(count))


def said(text: str) -> str:
    """Return what the site says, such as why a session waits, in the reader's language."""
    return sentence.said_in(text, spoken())


def language_of(connection: HTTPConnection) -> Language:
    """Return the language in which somebody is answered: the account's, else the browser's, else English."""
    known = getattr(connection.state, "known", None)
    if known and known.language:
        return Language(known.language)
    return wanted(connection.headers.get("accept-language", ""))


def wanted(header: str) -> Language:
    """Return the language that a browser likes best of ours."""
    wishes: list[tuple[float, Language]] = []
    for word in header.split(",")[:MAX_WISHES]:
        tag, _, parameter = word.strip().partition(";")
        name = tag.strip().lower().partition("-")[0]
        quality = _quality(parameter)
        if name in set(Language) and quality > 0:
            wishes.append((quality, Language(name)))
    # of what is liked equally the first counts
    return max(wishes, key=lambda wish: wish[0])[1] if wishes else Language.ENGLISH


def _quality(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        quality = float(value)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
