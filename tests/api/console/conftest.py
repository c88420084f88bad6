"""Browsers that are signed in, as the pages of the console know them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from gettext import NullTranslations

import httpx
import pytest
from babel import Locale

from api.console import texts
from api.console.texts import Speech
from api.lists import stamps
from api.tables.users import Language
from tests.api.cluster import Cluster, sign_in

PAGE = {"Accept": "text/html,application/xhtml+xml"}


class Marking(NullTranslations):
    """A language in which every text stands between marks."""

    def gettext(self, message: str) -> str:
        """Return the text between marks."""
        return f"⟦{message}⟧"

    def ngettext(self, one: str, many: str, count: int) -> str:
        """Return the text between marks."""
        return f"⟦{one if count == 1 else many}⟧"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages be said in a language of which every text stands between marks."""
    marking = Speech(Language.THAI, Marking(), Locale.parse("th"))
    monkeypatch.setattr(texts, "speech", lambda language: marking)


@pytest.fixture(autouse=True)
def seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages see at once what was written."""
    monkeypatch.setattr(stamps, "SEEN_S", 0.0)


@pytest.fixture
async def browser(ready: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in which the administrator is signed in, on a cluster that is ready for sessions."""
    async with ready.client(**PAGE) as client:
        await sign_in(client, "admin")
        yield client
