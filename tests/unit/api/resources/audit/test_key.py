"""The key of the audit log: without a good one no log is kept, and who starts the API is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.resources.audit import service
from api.settings import Settings
from common.errors import UnavailableError


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_key_seals_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(UnavailableError, match="is empty"):
        service.log_of(Settings(audit_folder=tmp_path, audit_key=tmp_path / "key"))
