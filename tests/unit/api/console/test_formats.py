"""Formats: what the console calls states, kinds and roles."""

from __future__ import annotations

from enum import StrEnum

import pytest

from api.console import formats, texts
from api.tables.users import Language
from common.backup_protocol import BackupOrderState
from common.repairs import RunState


@pytest.mark.parametrize("kind", formats.NAMES)
def test_every_state_kind_and_role_has_a_name(kind: type[StrEnum]) -> None:
    assert set(formats.NAMES[kind]) == set(kind)


def test_a_name_is_that_of_its_kind_in_the_readers_language() -> None:
    texts.current.set(Language.KOREAN)
    try:
        assert formats.name(RunState.CANCELLED) == formats.name(BackupOrderState.CANCELLED) == "취소됨"
    finally:
        texts.current.set(Language.ENGLISH)
