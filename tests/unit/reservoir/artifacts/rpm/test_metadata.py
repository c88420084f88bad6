"""The index of an RPM repository, as nobody should write it."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from common.errors import IntegrityError
from reservoir.artifacts.rpm import metadata
from reservoir.artifacts.rpm.source import Repository
from reservoir.download.cache import Cache

PRIMARY = b"<metadata/>"
TIME = "1767322800"
INDEX = """\
<repomd xmlns="http://linux.duke.edu/metadata/repo">
  <data type="primary">
    <checksum type="sha256">{sha256}</checksum>
    <location href="{place}"/>
    <timestamp>{timestamp}</timestamp>
    <size>{size}</size>
  </data>
</repomd>
"""
SOURCE = Repository("vendor", "https://vendor.example/el9/", (), False)


def read(
    cache: Cache, timestamp: str = TIME, size: str = str(len(PRIMARY)), place: str = "repodata/primary.xml"
) -> dict[str, metadata.MetadataFile]:
    """Read the metadata of a repository whose index says so."""
    index = INDEX.format(sha256=hashlib.sha256(PRIMARY).hexdigest(), timestamp=timestamp, size=size, place=place)

    def answer(request: httpx.Request) -> httpx.Response:
        content = PRIMARY if request.url.path.endswith("primary.xml") else index.encode()
        return httpx.Response(200, stream=httpx.ByteStream(content))

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        return metadata.read(http, cache, SOURCE, ["primary"], may_be_older=False)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_what_is_not_older_than_before_is_read(cache: Cache) -> None:
    for timestamp in ("1767322800", "1767322800", "1767322801"):
        assert read(cache, timestamp)["primary"].text() == PRIMARY.decode()
    with pytest.raises(IntegrityError, match="older than what was there before"):
        read(cache, "1767322800")


@pytest.mark.parametrize("timestamp", ["nan", "inf", "-1", "1e400", "tomorrow", "1.5", "٣", "9" * 400])
def test_a_timestamp_is_a_number(cache: Cache, timestamp: str) -> None:
    read(cache)
    with pytest.raises(IntegrityError, match="its timestamp is no whole number"):
        read(cache, timestamp)


@pytest.mark.parametrize("size", ["nan", "-1", "much", "1" * 5000])
def test_a_size_is_a_number(cache: Cache, size: str) -> None:
    with pytest.raises(IntegrityError, match="its size is no whole number"):
        read(cache, size=size)


def test_a_timestamp_does_not_lie_ahead(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: float(TIME))
    read(cache, str(int(TIME) + metadata.AHEAD_S))
    with pytest.raises(IntegrityError, match="more than a day ahead"):
        read(cache, str(int(TIME) + metadata.AHEAD_S + 1))


@pytest.mark.parametrize(
    "place",
    ["file:///etc/shadow", "http://vendor.example/el9/primary.xml", "https://other.example/primary.xml", "//x/y"],
)
def test_metadata_stays_with_its_source(cache: Cache, place: str) -> None:
    with pytest.raises(IntegrityError, match="does not lie with its source"):
        read(cache, place=place)


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "--stdout"], input=content, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstd)]
)
def test_what_is_packed_is_unpacked_no_further_than_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "packed"

    def file(content: bytes, open_size: int = 0) -> metadata.MetadataFile:
        packed.write_bytes(pack(content))
        return metadata.MetadataFile(f"repodata/primary.xml{suffix}", packed, "vendor", open_size)

    assert file(PRIMARY, len(PRIMARY)).text() == file(PRIMARY).text() == PRIMARY.decode()
    told = rf"repodata/primary.xml{suffix}: the metadata of vendor unpacks to more than"
    bomb = b"<metadata>" + bytes(3 << 20)
    with pytest.raises(IntegrityError, match=f"{told} 100 bytes"):
        file(bomb, 100).text()
    assert len(file(bomb).text()) == len(bomb)
    if suffix != ".zst":  # createrepo_c takes it for a shorter one; its checksum has told before that it is damaged
        packed.write_bytes(pack(bomb)[:-9])
        with pytest.raises(IntegrityError, match="the metadata of vendor cannot be unpacked"):
            metadata.MetadataFile(f"primary.xml{suffix}", packed, "vendor", 4 << 20).text()
    monkeypatch.setattr(metadata, "SMALL", 1000)
    monkeypatch.setattr(metadata, "TIMES", 2)
    for declared in (0, len(bomb)):
        with pytest.raises(IntegrityError, match=told):
            file(bomb, declared).text()
    assert [path.name for path in tmp_path.iterdir()] == ["packed"], "nothing stays beside it"


def test_what_unpacks_takes_no_module_from_where_somebody_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "__init__.py").touch()
    (tmp_path / "reservoir.py").touch()
    monkeypatch.chdir(tmp_path)
    packed = tmp_path / "packed"
    packed.write_bytes(zstd(PRIMARY))
    assert metadata.MetadataFile("primary.xml.zst", packed, "vendor", len(PRIMARY)).text() == PRIMARY.decode()


def test_the_index_says_how_long_a_file_is_unpacked(cache: Cache) -> None:
    assert read(cache)["primary"].open_size == 0
    assert read(cache, size=f"{len(PRIMARY)}</size><open-size>12345</open-size><size>")["primary"].open_size == 12345
