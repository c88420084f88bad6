"""The security checker beside the programs that it must agree with: dpkg, rpm and ClamAV."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common import process
from common.errors import InputError, NotFoundError, ProcessError
from reservoir.bundle import bundles
from reservoir.contents.artifact import FileArtifact, PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.scan.clamav import Clamav
from reservoir.scan.versions import debian, rpm
from tests.integration.reservoir.conftest import penstock
from tests.unit.reservoir.parts import artifact, make_bundle, wheel
from tests.unit.reservoir.scan.advisories import URLLIB3, write

# a file that `zip` encrypted
SHUT = (
    "UEsDBBQACQAIALcoeF14Bi8zHQAAADoAAAAFAAAAYS50eHSqxjwwIXfnQ5XnTjjtV0Op62t+TKo9Qp/wwDnB51BLBwh4Bi8zHQAA"
    "ADoAAABQSwECHgMUAAkACAC3KHhdeAYvMx0AAAA6AAAABQAAAAAAAAABAAAApIEAAAAAYS50eHRQSwUGAAAAAAEAAQAzAAAAUAAA"
    "AAAA"
)
MARKER = "PENSTOCK-TEST-MARKER-OF-NO-OTHER-MEANING"
DEBIAN = st.from_regex(r"\A([0-2]:)?[0-9][0-9a-cZ.+~]{0,6}(-[0-9ab.+~]{1,4})?\Z")
RPM = st.text("0129abZ.~^_+", min_size=1, max_size=8)


def agree(found: int, wanted: int) -> bool:
    return (found > 0) - (found < 0) == wanted


@settings(max_examples=300)
@given(one=DEBIAN, other=DEBIAN)
@example("1.0~rc1-1", "1.0-1")
@example("1.0-1+b1", "1.0-1")
@example("1:0.1", "9.9")
@example("1.0-0", "1.0")
@example("1.0+dfsg-1", "1.0a-1")
def test_debian_versions_are_in_the_order_of_dpkg(one: str, other: str) -> None:
    for word, order in (("lt", -1), ("eq", 0), ("gt", 1)):
        done = subprocess.run(["dpkg", "--compare-versions", one, word, other], check=False, capture_output=True)
        if done.returncode == 0:
            assert agree(debian(one, other), order), (one, other, word)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(RPM, RPM), min_size=20, max_size=20))
@example(pairs=[("1.0~rc1", "1.0"), ("1.0^git1", "1.0"), ("1.0^git1", "1.0.1"), ("1.0~rc1^git1", "1.0~rc1")])
@example(pairs=[("10", "9"), ("1.a", "1.1"), ("1_0", "1.0"), ("01", "1"), ("a", "b"), ("2.50", "2.5")])
def test_rpm_versions_are_in_the_order_of_rpm(pairs: list[tuple[str, str]]) -> None:
    program = process.require("rpm", "rpm")
    lua = " ".join(f'print(rpm.vercmp("{one}", "{other}") .. " ")' for one, other in pairs)
    orders = subprocess.run([program, "--eval", f"%{{lua:{lua}}}"], check=True, capture_output=True, text=True).stdout
    for (one, other), order in zip(pairs, orders.split(), strict=True):
        assert agree(rpm(f"{one}-1", f"{other}-1"), int(order)), (one, other, order)


@pytest.fixture(scope="module")
def _clamav(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """ClamAV on the path: this machine's, or one unpacked from its Debian packages.

    They are not installed: with them comes a service that loads signatures from the internet.
    """
    patch = pytest.MonkeyPatch()
    if not shutil.which("clamscan"):
        folder = tmp_path_factory.mktemp("clamav")
        words = ["apt-get", "--simulate", "install", "--no-install-recommends", "clamav"]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            # a machine without lists of packages
            subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
        planned = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        names = {line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")}
        wanted = sorted(names - {"clamav-freshclam", "logrotate"})
        subprocess.run(["apt-get", "download", *wanted], check=True, capture_output=True, cwd=folder)
        for deb in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True, capture_output=True)
        (library,) = {path.parent for path in folder.glob("usr/lib/*/libclamav.so.*")}
        patch.setenv("PATH", f"{folder}/usr/bin", prepend=os.pathsep)
        patch.setenv("LD_LIBRARY_PATH", str(library))
    yield
    patch.undo()


@pytest.fixture
def signatures(tmp_path: Path) -> Path:
    """A folder with one signature, of today."""
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "own.ndb").write_text(f"Penstock.Test.Marker:0:*:{MARKER.encode().hex()}\n")
    return folder


def bundle_with(folder: Path, body: str) -> tuple[Bundle, Path]:
    """A bundle with a wheel, whose module says `body`, and its blobs."""
    folder.mkdir()
    path = wheel(folder, body=body)
    made = make_bundle(folder, Ed25519PrivateKey.generate(), made=[(artifact(path, PythonArtifact, "demo"), path)])
    return bundles.decode((made / bundles.LIST).read_bytes(), str(made)), made / bundles.BLOBS


@pytest.mark.usefixtures("_clamav")
def test_clamav_finds_what_is_packed_inside_a_wheel(tmp_path: Path, signatures: Path) -> None:
    now = datetime.now(UTC)
    clean = Clamav(signatures).search(*bundle_with(tmp_path / "clean", "x = 1\n"), now, 14)
    assert (clean.files, clean.found, clean.partly) == (1, [], [])
    assert clean.engine.startswith("ClamAV 1.")
    dirty = Clamav(signatures).search(*bundle_with(tmp_path / "dirty", f"x = '{MARKER}'\n"), now, 14)
    (entry,) = dirty.found
    assert (entry.filename, entry.signature) == ("demo-1.0-py3-none-any.whl", "Penstock.Test.Marker.UNOFFICIAL")


@pytest.mark.usefixtures("_clamav")
def test_signatures_that_are_old_or_absent_find_nothing_and_say_so(tmp_path: Path, signatures: Path) -> None:
    made, blobs = bundle_with(tmp_path / "clean", "x = 1\n")
    now = datetime.now(UTC)
    old = time.time() - 15 * 24 * 3600 - 60
    os.utime(signatures / "own.ndb", (old, old))
    with pytest.raises(InputError, match="the signatures are of"):
        Clamav(signatures).search(made, blobs, now, 14)
    # an official file says its own day, whenever it was copied
    (signatures / "own.ndb").unlink()
    (signatures / "daily.cvd").write_text(
        "ClamAV-VDB:16 Sep 2021 08-32 -0400:26295:1:90:x:x:builder:1631795562".ljust(512)
    )
    with pytest.raises(InputError, match="the signatures are of 2021-09-16"):
        Clamav(signatures).search(made, blobs, now, 14)
    (signatures / "daily.cvd").write_text("nothing of the kind")
    with pytest.raises(InputError, match="do not say of when they are"):
        Clamav(signatures).search(made, blobs, now, 14)
    (signatures / "daily.cvd").unlink()
    with pytest.raises(NotFoundError, match="there are no signatures of malware"):
        Clamav(signatures).search(made, blobs, now, 14)
    with pytest.raises(NotFoundError, match="cannot be read"):
        Clamav(tmp_path / "absent").search(made, blobs, now, 14)


@pytest.mark.usefixtures("_clamav")
def test_damaged_signatures_are_a_failure_of_the_search(tmp_path: Path, signatures: Path) -> None:
    (signatures / "own.ndb").write_text("Penstock.Test.Marker:0:*:not hex\n")
    with pytest.raises(ProcessError, match="clamscan ended with code"):
        Clamav(signatures).search(*bundle_with(tmp_path / "clean", "x = 1\n"), datetime.now(UTC), 14)


@pytest.mark.usefixtures("_clamav")
def test_the_command_refuses_a_bundle_with_malware(tmp_path: Path, signatures: Path) -> None:
    _, blobs = bundle_with(tmp_path / "dirty", f"x = '{MARKER}'\n")
    today = datetime.now(UTC).isoformat()
    advisories = write(tmp_path / "advisories", *({**entry, "modified": today} for entry in URLLIB3))
    report = tmp_path / "report.json"
    words: list[str | Path] = ["--advisories", advisories, "--clamav", "--signatures", signatures, "--json", report]
    said = penstock("scan", blobs.parents[1], *words, code=8)
    assert "malware was found: Penstock.Test.Marker" in said.stderr
    assert json.loads(report.read_text())["malware"]["found"][0]["filename"] == "demo-1.0-py3-none-any.whl"


@pytest.mark.usefixtures("_clamav")
def test_clamav_says_what_only_a_password_opens(tmp_path: Path, signatures: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir()
    path = folder / "shut.zip"
    path.write_bytes(base64.b64decode(SHUT))
    made = make_bundle(folder, Ed25519PrivateKey.generate(), made=[(artifact(path, FileArtifact, "shut.zip"), path)])
    listed = bundles.decode((made / bundles.LIST).read_bytes(), str(made))
    searched = Clamav(signatures).search(listed, made / bundles.BLOBS, datetime.now(UTC), 14)
    assert (searched.encrypted, searched.partly) == (["shut.zip"], [])
