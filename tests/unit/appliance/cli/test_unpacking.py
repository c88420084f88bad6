"""Archives of somebody who means harm: nothing is written outside, and no header is taken into memory whole."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli.tar_stream import members
from appliance.cli.unpacking import Unpacker
from common.errors import InputError, IntegrityError

FORMATS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode, info.mtime = kind, link, len(data), 0o4755, 1_700_000_000
    return info, data


def archive(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as written:
        for info, data in entries:
            written.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path, first: str = "x", called: str = "y") -> None:
    with Unpacker(folder, first, called) as unpacker:
        for info, content in members(io.BytesIO(data).read):
            unpacker.take(info, content)
    unpacker.check()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("as it was")
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.mark.parametrize("form", FORMATS)
def test_a_tree_is_as_it_was_under_its_new_name(target: Path, form: int) -> None:
    long = "n" * 200
    tree = [
        entry("x", tarfile.DIRTYPE),
        entry(f"x/{long}", data=b"long"),
        entry("x/hard", tarfile.LNKTYPE, f"x/{long}"),
        entry("x/sub/deep", data=b"d" * 1_000_000),
        entry("x/sub/up", tarfile.SYMTYPE, f"../{long}"),
    ]
    unpack(archive(*tree, form=form), target)
    assert (target / "y" / long).read_text() == (target / "y/hard").read_text() == "long"
    assert (target / "y/sub/up").read_text() == "long"
    file = (target / "y/sub/deep").stat()
    assert (file.st_size, stat.S_IMODE(file.st_mode), file.st_mtime) == (1_000_000, 0o755, 1_700_000_000)


@pytest.mark.parametrize("name", ["/outside", "../outside", "x/../../outside", "other", "x/../x"])
@pytest.mark.parametrize("form", FORMATS)
def test_names_that_lead_out_end_it(target: Path, name: str, form: int) -> None:
    with pytest.raises(IntegrityError, match="outside of what was asked for"):
        unpack(archive(entry(name, data=b"written"), form=form), target)
    assert (target.parent / "outside").read_text() == "as it was"
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    "link", ["/etc", "..", "../outside", "a/../../..", "sub/..", "../../target/y"], ids=lambda link: link
)
def test_links_that_lead_out_are_left_out(target: Path, link: str) -> None:
    with pytest.raises(InputError, match="y/link"):
        unpack(archive(entry("x/link", tarfile.SYMTYPE, link), entry("x/file", data=b"kept")), target)
    assert [path.name for path in (target / "y").iterdir()] == ["file"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_left_out(target: Path, kind: bytes) -> None:
    with pytest.raises(InputError, match="y/thing"):
        unpack(archive(entry("x/thing", kind)), target)
    assert not list(target.rglob("thing"))


def follow_a_link_of_before(target: Path) -> bytes:
    (target / "y").mkdir()
    (target / "y/link").symlink_to(target.parent)
    return archive(entry("x/link/outside", data=b"written"))


def write_through_a_link_of_before(target: Path) -> bytes:
    (target / "y").symlink_to(target.parent / "outside")
    return archive(entry("x", data=b"written"))


def link_hard_through_a_link_of_before(target: Path) -> bytes:
    (target / "y").mkdir()
    (target / "y/link").symlink_to(target.parent)
    return archive(entry("x/hard", tarfile.LNKTYPE, "x/link/outside"))


@pytest.mark.parametrize(
    "made", [follow_a_link_of_before, write_through_a_link_of_before, link_hard_through_a_link_of_before]
)
def test_links_that_were_there_are_not_followed(target: Path, made: Callable[[Path], bytes]) -> None:
    data = made(target)
    try:
        unpack(data, target)
    except InputError:
        assert not (target / "y/hard").exists()
    assert (target.parent / "outside").read_text() == "as it was"


def test_a_header_as_long_as_it_likes_is_not_read(target: Path) -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(IntegrityError, match="a header of 1099511627776 bytes"):
        unpack(info.tobuf(tarfile.GNU_FORMAT), target)


@pytest.mark.parametrize("data", [b"no archive" * 100, archive(entry("x", data=b"d" * 5000))[:1024]])
def test_what_is_no_archive_says_so(target: Path, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="no archive"):
        unpack(data, target)
