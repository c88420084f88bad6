"""Formats: what the console calls states, kinds and roles."""

from __future__ import annotations

import shlex
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


@pytest.mark.parametrize(
    ("mib", "written"),
    [
        (512, "512 MiB"),
        (1536, "1.5 GiB"),
        (99_999, "97.7 GiB"),
        (2048 * 1024, "2,048 GiB"),
        (107_000 * 1024, "107,000 GiB"),
    ],
)
def test_memory_is_written_as_people_do_however_much_it_is(mib: int, written: str) -> None:
    assert formats.memory(mib) == written


@pytest.mark.parametrize(("milli", "written"), [(500, "0.5"), (128_000, "128"), (1_280_000_500, "1,280,000.5")])
def test_cores_are_written_with_all_digits(milli: int, written: str) -> None:
    assert formats.cores(milli) == written


def test_a_command_can_be_typed_again_as_it_is_written() -> None:
    words = ["sh", "-c", "echo 'a b' | wc"]
    assert shlex.split(formats.command(words)) == words
