"""Texts of the console in the reader's language: all that a page says goes through here.

The names are those that gettext's tools look for, in templates and in code.
"""

from __future__ import annotations

from contextvars import ContextVar
from gettext import NullTranslations

translations: ContextVar[NullTranslations] = ContextVar("translations", default=NullTranslations())  # noqa: B039
"""The catalogue of the request; without one texts are as they are written."""


def gettext(message: str) -> str:
    """Return a text in the reader's language."""
    return translations.get().gettext(message)


def ngettext(one: str, many: str, count: int) -> str:
    """Return a text about so many things in the reader's language."""
    return translations.get().ngettext(one, many, count)
