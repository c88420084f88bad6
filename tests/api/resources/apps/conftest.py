"""What tests of apps share: nothing that was looked up stays known."""

from __future__ import annotations

import pytest

from api.resources.apps import service


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "KEEP_S", -1.0)
