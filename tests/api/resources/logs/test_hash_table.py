"""Which journals may have a value: every one that has it, and of the others hardly any."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from api.resources.logs import hash_table
from tests import journals

NODES = ("master1", "worker1", "worker2")
CHAINED = 4000
"""So many values that some share a bucket of the smallest table."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of three nodes, each with values of its own and one of all."""
    folder = tmp_path_factory.mktemp("remote")
    for node in NODES:
        (folder / node).mkdir()
        lines = [
            {"MESSAGE": f"{number}", "PENSTOCK_REQUEST": f"{node}-{number}", "PENSTOCK_SESSION": "of-all"}
            for number in range(CHAINED if node == "worker1" else 3)
        ]
        journals.write(folder / node / f"{node}.journal", lines)
    return folder


@pytest.mark.parametrize(
    ("length", "code"), [(0, 0x726FDB47DD0E0E31), (8, 0x93F5F5799A932462), (15, 0xA129CA6149BE45E5)]
)
def test_the_hash_is_that_of_its_authors(length: int, code: int) -> None:
    assert hash_table.siphash(bytes(range(16)), bytes(range(length))) == code


def test_those_that_have_a_value_are_named_and_no_others(folder: Path) -> None:
    for node in NODES:
        assert hash_table.patterns(folder, [f"PENSTOCK_REQUEST={node}-1"]) == [folder / node / "*.journal*"]
    assert hash_table.patterns(folder, ["PENSTOCK_SESSION=of-all"]) == [folder / node / "*.journal*" for node in NODES]
    both = ["PENSTOCK_SESSION=of-all", "PENSTOCK_REQUEST=worker2-0"]
    assert hash_table.patterns(folder, both) == [folder / "worker2" / "*.journal*"]
    assert hash_table.patterns(folder, ["PENSTOCK_REQUEST=nobodys"]) == []


def test_nothing_that_is_there_is_missed(folder: Path) -> None:
    journal = folder / "worker1" / "worker1.journal"
    assert all(hash_table.may_have(journal, [f"PENSTOCK_REQUEST=worker1-{number}"]) for number in range(CHAINED))
    assert not any(hash_table.may_have(journal, [f"PENSTOCK_REQUEST=worker1-{number}x"]) for number in range(CHAINED))


def test_journalctl_looks_at_all_where_nothing_rare_is_asked_for_or_many_have_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hash_table.patterns(folder, []) == [folder / "*/*.journal*"]
    monkeypatch.setattr(hash_table, "MOST", 2)
    assert hash_table.patterns(folder, ["PENSTOCK_SESSION=of-all"]) == [folder / "*/*.journal*"]


@pytest.mark.parametrize("place", [0, 104, 112, 8], ids=["signature", "table", "size of the table", "flags"])
def test_a_file_that_cannot_be_understood_may_have_anything(folder: Path, tmp_path: Path, place: int) -> None:
    content = bytearray((folder / "worker2/worker2.journal").read_bytes())
    content[place : place + 8] = struct.pack("<Q", 0) if place in (0, 112, 8) else b"\xff" * 8
    copy = tmp_path / "one.journal"
    copy.write_bytes(content)
    assert hash_table.may_have(copy, ["PENSTOCK_REQUEST=nobodys"])
    copy.write_bytes(content[:50])
    assert hash_table.may_have(copy, ["PENSTOCK_REQUEST=nobodys"])


def test_a_bucket_that_leads_back_ends(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / "worker2/worker2.journal").read_bytes())
    (table,) = struct.unpack_from("<Q", content, 104)
    struct.pack_into("<QQ", content, 104, table, 16)
    struct.pack_into("<Q", content, table, table + 32)
    struct.pack_into("<QQ", content, table + 48, 1, table + 32)
    copy = tmp_path / "one.journal"
    copy.write_bytes(content)
    assert hash_table.may_have(copy, ["PENSTOCK_REQUEST=nobodys"])


def test_a_file_that_is_gone_has_nothing(tmp_path: Path) -> None:
    assert not hash_table.may_have(tmp_path / "gone.journal", ["PENSTOCK_REQUEST=r1"])
