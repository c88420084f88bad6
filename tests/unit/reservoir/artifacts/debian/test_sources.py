from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from reservoir.artifacts.debian import sources
from reservoir.artifacts.debian.sources import Entry

OURS = """\
# a dated mirror
Types: deb deb-src
URIs: http://mirror.example/debian/20260101
Suites: bookworm bookworm-updates
 bookworm-backports sid
Components: main
Trusted: yes
Check-Valid-Until: no
Architectures: amd64
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 xxxx

Types: deb
URIs: https://vendor.example/apt
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
LINES = """\
# deb http://commented.example bookworm main
deb [arch=amd64 signed-by=/k.gpg trusted=yes] http://security.example/debian-security bookworm-security main contrib
deb-src http://security.example/debian-security bookworm-security main
deb https://vendor.example/apt cloud-sdk-bookworm main
"""
SECURITY = Entry("http://security.example/debian-security", "bookworm-security", "main contrib", "/k.gpg")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """The sources of a Debian 12 machine."""
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"})
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/debian.sources").write_text(OURS)
    (tmp_path / "parts/extra.list.disabled").write_text("deb http://no.example bookworm main\n")
    (tmp_path / "sources.list").write_text(LINES)
    return sources.machine(tmp_path / "sources.list", tmp_path / "parts")


@pytest.mark.parametrize("word", ["no", "No", "FALSE", "off", "disable", "0"])
def test_a_source_that_is_switched_off_is_not_asked(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.sources").write_text(OURS.replace("Enabled: no", f"Enabled: {word}"))
    assert all("off.example" not in entry.uris for entry in sources.machine(tmp_path / "none", tmp_path))


def test_every_source_that_is_switched_on_is_found(found: list[Entry]) -> None:
    assert [entry.suite for entry in found] == [
        "bookworm-security",
        "cloud-sdk-bookworm",
        "bookworm",
        "bookworm-updates",
        "bookworm-backports",
        "sid",
        "nodistro",
    ]
    assert found[0] == SECURITY


def test_what_vouches_for_a_source_comes_along_and_what_disables_the_check_does_not(found: list[Entry]) -> None:
    text = found[2].text()
    assert text.startswith("Types: deb\nURIs: http://mirror.example/debian/20260101\nSuites: bookworm\n")
    assert "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n xxxx\n" in text
    for option in ("Trusted", "Check-Valid-Until", "Architectures"):
        assert option not in text


def test_only_sources_of_the_release_come_along(found: list[Entry]) -> None:
    suites = [entry.suite for entry in sources.for_release(found, "bookworm")]
    assert suites == ["bookworm-security", "bookworm", "bookworm-updates", "bookworm-backports"]


def test_another_release_of_debian_is_asked_of_the_same_mirrors(found: list[Entry]) -> None:
    kept = sources.for_release(found, "trixie")
    assert [entry.suite for entry in kept] == ["trixie-security", "trixie", "trixie-updates", "trixie-backports"]
    assert kept[0] == Entry(SECURITY.uris, "trixie-security", SECURITY.components, SECURITY.signed_by)
    assert "vendor.example" not in "".join(entry.uris for entry in kept)


def test_a_source_that_carries_the_other_release_is_taken_as_it_is(found: list[Entry]) -> None:
    other = Entry("http://other.example/debian", "trixie", "main")
    assert sources.for_release([*found, other], "trixie") == [other]


def test_mirrors_of_another_distribution_are_not_asked_for_debian(
    found: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "ubuntu", "VERSION_CODENAME": "bookworm"})
    assert sources.for_release(found, "trixie") == []


def test_only_an_entry_that_may_be_past_its_time_says_so(found: list[Entry]) -> None:
    assert "Check-Valid-Until" not in found[0].text()
    assert "Check-Valid-Until: no\n" in replace(found[0], expires=False).text()


@pytest.mark.parametrize(("system", "own", "wanted", "suites"), [
    ("ubuntu", "jammy", "noble", ["noble", "noble-updates"]),
    ("ubuntu", "jammy", "bookworm", []),
    ("debian", "jammy", "noble", []),
])  # fmt: skip
def test_mirrors_are_asked_for_other_releases_of_their_own_distribution(
    monkeypatch: pytest.MonkeyPatch, system: str, own: str, wanted: str, suites: list[str]
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": system, "VERSION_CODENAME": own})
    entries = [Entry("http://mirror.example/ubuntu", suite, "main", "/k.gpg") for suite in (own, f"{own}-updates")]
    assert [entry.suite for entry in sources.for_release(entries, wanted)] == suites
