"""Archives of somebody who means harm: nothing is written outside, and no header is taken into memory whole."""

from __future__ import annotations

import io
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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


DEEP = [entry("x/a/b/c/s", tarfile.SYMTYPE, "../../.."), entry("x/out", tarfile.LNKTYPE, "x/a/b/c/s")]
"""A link that stays inside where it is, and would not under a name nearer to the top."""


def test_a_link_gets_no_second_name(target: Path) -> None:
    with pytest.raises(InputError, match="y/out"):
        unpack(archive(*DEEP, entry("x/file", data=b"kept")), target)
    assert sorted(path.name for path in (target / "y").iterdir()) == ["a", "file"]


def test_a_second_copy_leads_out_through_nothing_of_the_first(target: Path) -> None:
    for tree in (archive(*DEEP), archive(entry("x/out/outside", data=b"written"))):
        with suppress(InputError):
            unpack(tree, target)
    assert (target.parent / "outside").read_text() == "as it was"
    unpack(archive(entry("x", data=b"written")), target / "y/a/b/c/s", called="beside")
    assert (target / "y/beside").read_text() == "written"


def test_headers_without_a_member_fill_no_memory(target: Path) -> None:
    def headers() -> Iterator[bytes]:
        for number in range(64):
            record = b" k%02d=" % number + b"a" * 100_000 + b"\n"
            info = tarfile.TarInfo("PaxHeader")
            info.type, info.size = tarfile.XHDTYPE, len(record) + 6
            yield info.tobuf() + b"%d" % info.size + record + b"\0" * (-info.size % 512)

    with pytest.raises(IntegrityError, match="a header of"):
        unpack(b"".join(headers()), target)


@pytest.mark.parametrize("mtime", ["nan", "1e300", "-inf"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_a_time_that_cannot_be_is_left_out(target: Path, mtime: str, kind: bytes) -> None:
    info, data = entry("x", kind)
    info.pax_headers = {"mtime": mtime}
    unpack(archive((info, data), form=tarfile.PAX_FORMAT), target)
    assert (target / "y").stat().st_mtime == pytest.approx(time.time(), abs=600)


@pytest.mark.parametrize("data", [b"", bytes(1024)])
def test_nothing_is_no_copy(target: Path, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="sent nothing"):
        unpack(data, target)


def test_a_file_that_is_cut_off_takes_no_name(target: Path) -> None:
    (target / "y").write_text("as it was")
    with pytest.raises(IntegrityError, match="ends in the middle"):
        unpack(archive(entry("x", data=b"d" * 5000))[:1024], target)
    assert [path.read_text() for path in target.iterdir()] == ["as it was"]


def test_names_that_a_terminal_would_obey_are_shown(target: Path) -> None:
    with pytest.raises(InputError) as raised:
        unpack(archive(entry("x/\x1b[2J", tarfile.FIFOTYPE), form=tarfile.PAX_FORMAT), target)
    assert raised.value.problems[0].where == "y/\\x1b[2J"
