"""Metadata of wheels, damaged and forged in every way that people and attackers know."""

from __future__ import annotations

import random
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from reservoir.artifacts.python import core_metadata
from tests.unit.reservoir.parts import wheel

BOMB = 64 << 20


@pytest.fixture
def bomb(tmp_path: Path) -> Path:
    """A small wheel whose metadata is long."""
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("demo-1.0.dist-info/METADATA", "w") as file,
    ):
        for _ in range(BOMB >> 20):
            file.write(bytes(1 << 20))
    return path


def test_it_is_what_the_wheel_says_and_not_what_it_carries(tmp_path: Path) -> None:
    assert core_metadata.read(wheel(tmp_path)).startswith(b"Metadata-Version: 2.1\nName: demo\n")


def test_what_is_too_long_is_not_unpacked(bomb: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"its METADATA has {BOMB} bytes, {core_metadata.LARGEST} are allowed"):
            core_metadata.read(bomb)
        assert tracemalloc.get_traced_memory()[1] < core_metadata.LARGEST
    finally:
        tracemalloc.stop()


def _locked(content: bytes) -> bytes:
    """The wheel as if every entry had a password: bit 0 of the flags, in both places."""
    marked = bytearray(content)
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = marked.find(mark)
        while start >= 0:
            marked[start + at] |= 1
            start = marked.find(mark, start + 1)
    return bytes(marked)


def _odd_method(content: bytes) -> bytes:
    """The wheel as if every entry were packed in a way that Python does not know."""
    marked = bytearray(content)
    for mark, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        start = marked.find(mark)
        while start >= 0:
            marked[start + at] = 77
            start = marked.find(mark, start + 1)
    return bytes(marked)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: b"", "damaged"),
        (lambda _: b"no archive", "damaged"),
        (lambda content: content[: len(content) // 2], "damaged"),
        (lambda content: content.replace(b"METADATA", b"METADATE"), "no metadata"),
        (_locked, "cannot be unpacked"),
        (_odd_method, "cannot be unpacked"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: Callable[[bytes], bytes], said: str) -> None:
    path = wheel(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=said):
        core_metadata.read(path)


def test_no_damage_is_anything_else_than_an_error_with_a_reason(tmp_path: Path) -> None:
    path, dice = wheel(tmp_path), random.Random(18)
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(bytes(damaged))
        with suppress(ValueError):
            core_metadata.read(path)
