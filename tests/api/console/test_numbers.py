"""Numbers of pages: as the reader's language writes them, wherever they may be large."""

from __future__ import annotations

import re
from types import SimpleNamespace

import httpx
import pytest
from babel import Locale

from api.console import formats, texts
from api.console.texts import Speech
from api.lists import session_search
from api.tables.sessions import State
from api.tables.users import Language

pytestmark = pytest.mark.anyio


@pytest.fixture
def german(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numbers be written with a dot between thousands, which none of our languages does."""
    spoken = texts.speech(Language.KOREAN)
    monkeypatch.setattr(texts, "speech", lambda _: Speech(Language.KOREAN, spoken.texts, Locale.parse("de")))


@pytest.mark.usefixtures("german")
def test_amounts_are_written_as_the_language_writes_large_numbers() -> None:
    assert (formats.gpus(12_345_500), formats.cores(1_234_000_000)) == ("12.345,5", "1.234.000")
    assert formats.memory(1 << 30) == "1.048.576 GiB"
    assert (formats.number(999), formats.number(12345)) == ("999", "12.345")
    assert texts.ngettext("and %(num)d more", "and %(num)d more", 12345).count("12.345") == 1


def test_small_amounts_are_written_as_they_were() -> None:
    assert (formats.gpus(1500), formats.cores(250), formats.memory(1536)) == ("1.5", "0.25", "1.5 GiB")


async def test_states_say_how_many_thousands_are_in_them(
    browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lines(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(counts={State.RUNNING: 12345}, lines=[], before=None)

    monkeypatch.setattr(session_search, "lines", lines)
    page = (await browser.get("/sessions")).text
    assert re.findall(r"(?:all|running) ([\d,.]+)</a>", page) == ["12,345", "12,345"]
