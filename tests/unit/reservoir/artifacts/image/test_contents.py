from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import shutil
import sqlite3
import struct
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from reservoir.artifacts.image import oci
from reservoir.artifacts.image.contents import Contents, read
from reservoir.artifacts.image.system import Installed
from reservoir.artifacts.rpm import header

DEBIAN = "PRETTY_NAME='Debian'\nID=debian\nVERSION_ID=\"12\"\n"
ALPINE = "ID=alpine\nVERSION_ID=3.20.3\n"
ROCKY = 'ID="rocky"\nVERSION_ID="9.4"\n'
STATUS = """Package: libssl3
Status: install ok installed
Source: openssl (3.0.11-1~deb12u1)
Version: 3.0.11-1~deb12u1+b1
Description: words
 Version: 9

Package: gone
Status: deinstall ok config-files
Version: 1-1

Package: half
Status: install ok half-configured
Version: 2-1
"""
OPENSSL = Installed("libssl3", "Debian:12", "openssl", "3.0.11-1~deb12u1")
HALF = Installed("half", "Debian:12", "half", "2-1")
Layer = Mapping[str, str | bytes | tarfile.TarInfo]


def tar(files: Layer) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, said in files.items():
            body = said.encode() if isinstance(said, str) else said
            member = body if isinstance(body, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(body, tarfile.TarInfo) else body
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def image(folder: Path, *layers: bytes, media: str = oci.LAYER) -> str:
    """An image of some layers below a folder of blobs; return the hash of its manifest."""
    folder.mkdir(exist_ok=True)

    def keep(content: bytes) -> dict[str, object]:
        sha256 = hashlib.sha256(content).hexdigest()
        (folder / sha256).write_bytes(content)
        return {"digest": f"sha256:{sha256}", "size": len(content)}

    config = keep(b"{}") | {"mediaType": oci.CONFIG}
    entries = [keep(layer) | {"mediaType": media} for layer in layers]
    manifest = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": config, "layers": entries}
    return str(keep(oci.encode(manifest))["digest"]).removeprefix("sha256:")


def found(folder: Path, *layers: Layer, pack: Callable[[bytes], bytes] = gzip.compress) -> Contents:
    blobs = folder / "blobs"
    return read(image(blobs, *(pack(tar(layer)) for layer in layers)), lambda sha256: blobs / sha256)


def zstd(content: bytes) -> bytes:
    return subprocess.run([shutil.which("zstd") or "zstd", "-c"], input=content, check=True, capture_output=True).stdout


def packed(*packages: tuple[str, str, str, int, str]) -> bytes:
    """The file of a database of RPM packages, as SQLite writes it."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
    for name, version, release, epoch, source in packages:
        index, data = b"", b""
        words = {header.NAME: name, header.VERSION: version, header.RELEASE: release, header.SOURCE_RPM: source}
        for tag, word in words.items():
            index += struct.pack(">IIII", tag, 6, len(data), 1)
            data += word.encode() + b"\0"
        index += struct.pack(">IIII", header.EPOCH, 4, len(data), 1)
        data += epoch.to_bytes(4)
        blob = struct.pack(">II", 5, len(data)) + index + data
        database.execute("INSERT INTO Packages (blob) VALUES (?)", (blob,))
    database.commit()
    return database.serialize()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, zstd])
def test_the_list_of_dpkg_is_read_out_of_the_layers(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    if pack is zstd and not shutil.which("zstd"):
        pytest.skip("zstd is not here")
    layers: Sequence[Layer] = [{"./etc/os-release": DEBIAN}, {"var/lib/dpkg/status": STATUS, "usr/bin/tool": "x"}]
    assert found(tmp_path, *layers, pack=pack) == Contents((HALF, OPENSSL))


def test_a_later_layer_counts_and_what_it_takes_away_is_gone(tmp_path: Path) -> None:
    release: Layer = {"usr/lib/os-release": DEBIAN, "etc/os-release": link("etc/os-release", "../usr/lib/os-release")}
    newer = STATUS.replace("3.0.11-1~deb12u1", "3.0.13-1")
    both = found(tmp_path, release, {"var/lib/dpkg/status": STATUS}, {"var/lib/dpkg/status": newer})
    assert "3.0.13-1" in {one.version for one in both.packages}
    parts: Layer = {"var/lib/dpkg/status.d/libssl3": STATUS, "var/lib/dpkg/status.d/libssl3.md5sums": STATUS}
    assert found(tmp_path, release, parts).packages
    nobody = Contents(unread="nobody says which packages are inside")
    for marker in (
        "var/lib/dpkg/.wh.status",
        "var/lib/.wh.dpkg",
        "var/lib/dpkg/.wh..wh..opq",
        ".wh..wh..opq",
        ".wh.var",
    ):
        assert found(tmp_path, release, {"var/lib/dpkg/status": STATUS}, {marker: ""}) == nobody, marker
    # what a layer takes away is below it, wherever the marker stands
    assert found(tmp_path, release, {"var/lib/dpkg/status": STATUS, "var/lib/dpkg/.wh..wh..opq": ""}).packages
    moved: Layer = {"var/lib/dpkg": link("var/lib/dpkg", "/srv/dpkg")}
    assert found(tmp_path, release, {"var/lib/dpkg/status": STATUS}, moved) == nobody


def test_the_list_of_apk_is_read(tmp_path: Path) -> None:
    listed = "C:Q1\nP:libcrypto3\nV:3.3.1-r3\no:openssl\n\nP:musl\nV:1.2.5-r0\n"
    assert found(tmp_path, {"etc/os-release": ALPINE, "lib/apk/db/installed": listed}).packages == (
        Installed("libcrypto3", "Alpine:v3.20", "openssl", "3.3.1-r3"),
        Installed("musl", "Alpine:v3.20", "musl", "1.2.5-r0"),
    )


def test_the_database_of_rpm_is_read_where_it_is_sqlite(tmp_path: Path) -> None:
    content = packed(
        ("openssl-libs", "3.0.7", "27.el9", 1, "openssl-3.0.7-27.el9.src.rpm"), ("gpg-pubkey", "1", "1", 0, "(none)")
    )
    assert found(tmp_path, {"etc/os-release": ROCKY, "var/lib/rpm/rpmdb.sqlite": content}).packages == (
        Installed("openssl-libs", "Rocky Linux:9", "openssl", "1:3.0.7-27.el9"),
        Installed("openssl-libs", "Rocky Linux:9", "openssl-libs", "1:3.0.7-27.el9"),
    )
    damaged = found(tmp_path, {"etc/os-release": ROCKY, "var/lib/rpm/rpmdb.sqlite": content[:5000]})
    assert "the database of its RPM packages cannot be read" in damaged.unread
    old = found(tmp_path, {"etc/os-release": ROCKY, "var/lib/rpm/Packages": b"berkeley"})
    assert old.unread == "the database of its RPM packages is of a form that rpm alone reads"


@pytest.mark.parametrize(("layer", "reason"), [
    ({"bin/tool": "x"}, "nobody says which packages are inside"),
    ({"etc/os-release": "ID=strange\nVERSION_ID=1\n", "lib/apk/db/installed": "P:a\nV:1\n"},
     "nobody says which advisories speak of strange 1"),
    ({"etc/os-release": DEBIAN, "x": link("var/lib/dpkg/status", "/srv/status")}, "var/lib/dpkg/status is a link"),
    ({"etc/os-release": DEBIAN, "x": link("var/lib/dpkg/status", "bin/tool", tarfile.LNKTYPE)},
     "var/lib/dpkg/status is a link"),
])  # fmt: skip
def test_what_cannot_be_told_is_said(tmp_path: Path, layer: Layer, reason: str) -> None:
    assert found(tmp_path, layer).unread.startswith(reason)


def test_a_damaged_layer_is_doubt_and_not_an_empty_image(tmp_path: Path) -> None:
    whole = gzip.compress(tar({"etc/os-release": DEBIAN, "var/lib/dpkg/status": STATUS}))
    blobs = tmp_path / "blobs"
    for content in (whole[:-200], b"no layer at all"):
        assert "a layer cannot be read" in read(image(blobs, content), lambda sha256: blobs / sha256).unread


def test_every_architecture_of_an_index_is_read(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    other = STATUS.replace("3.0.11-1~deb12u1", "3.0.13-1")
    layers = [gzip.compress(tar({"etc/os-release": DEBIAN, "var/lib/dpkg/status": text})) for text in (STATUS, other)]
    children = [image(blobs, layer) for layer in layers]
    # a statement about the image, which holds no file system
    children.append(image(blobs, b"{}", media="application/vnd.in-toto+json"))
    entries = [{"mediaType": oci.MANIFEST, "digest": f"sha256:{child}", "size": 1} for child in children]
    index = oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries})
    sha256 = hashlib.sha256(index).hexdigest()
    (blobs / sha256).write_bytes(index)
    made = read(sha256, lambda sha256: blobs / sha256)
    assert {one.version for one in made.packages} == {"3.0.11-1~deb12u1", "3.0.13-1", "2-1"}
    assert not made.unread


@pytest.mark.parametrize(("release", "ecosystem"), [
    ('ID=ubuntu\nVERSION_ID="24.04"\n', "Ubuntu:24.04:LTS"),
    ('ID=ubuntu\nVERSION_ID="23.10"\n', "Ubuntu:23.10"),
    ('ID="almalinux"\nVERSION_ID="9.4"\n', "AlmaLinux:9"),
    ('ID="rhel"\nVERSION_ID="9.4"\n', "Red Hat:enterprise_linux:9"),
    ("ID=wolfi\nVERSION_ID=20230201\n", "Wolfi"),
    ("ID=debian\nPRETTY_NAME='Debian GNU/Linux trixie/sid'\n", None),
])  # fmt: skip
def test_advisories_are_asked_by_the_name_of_the_system(tmp_path: Path, release: str, ecosystem: str | None) -> None:
    made = found(tmp_path, {"etc/os-release": release, "var/lib/dpkg/status": "Package: a\nVersion: 1\n"})
    assert {one.ecosystem for one in made.packages} == ({ecosystem} if ecosystem else set())
    assert bool(made.unread) is (ecosystem is None)


def test_what_only_has_the_name_of_a_database_is_not_asked(tmp_path: Path) -> None:
    database = sqlite3.connect(":memory:")
    endless = "WITH RECURSIVE c(hnum) AS (SELECT 1 UNION ALL SELECT hnum + 1 FROM c) SELECT hnum, hnum AS blob FROM c"
    database.execute(f"CREATE VIEW Packages AS {endless}")
    made = found(tmp_path, {"etc/os-release": ROCKY, "var/lib/rpm/rpmdb.sqlite": database.serialize()})
    assert made.unread.endswith("it has no table of packages as rpm makes it")


def test_a_full_disk_is_no_fault_of_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert found(tmp_path, {"etc/os-release": DEBIAN, "var/lib/dpkg/status": STATUS}).again


def test_long_lines_take_no_long_time(tmp_path: Path) -> None:
    text = f"Package: a{' ' * 400_000}b\nVersion: 1{' ' * 400_000}\n" + "\n" * 200_000 + "ID: x"
    assert [
        one.version for one in found(tmp_path, {"etc/os-release": DEBIAN, "var/lib/dpkg/status": text}).packages
    ] == ["1"]
