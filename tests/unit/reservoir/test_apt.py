from __future__ import annotations

from pathlib import Path

import pytest

from reservoir import apt, process
from reservoir.errors import InputError, ProcessError, UnavailableError
from reservoir.manifest import Target

TARGET = Target(name="debian12", release="bookworm", python="3.11", bootstrap=True)
OURS = """\
# a dated mirror
Types: deb deb-src
URIs: http://mirror.example/debian/20260101
Suites: bookworm bookworm-updates
 bookworm-backports sid
Components: main
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
deb [arch=amd64 signed-by=/k.gpg] http://security.example/debian-security bookworm-security main
deb-src http://security.example/debian-security bookworm-security main
deb https://vendor.example/apt cloud-sdk-bookworm main
deb http://mirror.example trixie main
"""


class Machine:
    """Answers for apt on a machine with these sources, and remembers what was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sources.list.d").mkdir(parents=True)
        self.answers: dict[str, str | ProcessError] = {}

    def run(self, command: list[str], **_: object) -> str:
        if command[:2] == ["apt-config", "dump"]:
            return (
                'Acquire::Check-Valid-Until "false";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
                'Acquire::IndexTargets::deb::Icons::DefaultEnabled "true";\n'
                'APT::Update::Post-Invoke:: "touch /tmp/hooked";\nDPkg::Post-Invoke:: "needrestart";\n'
            )
        if command[:2] == ["apt-config", "shell"]:
            places = {"sourcelist": "sources.list", "sourceparts": "sources.list.d/"}
            keys = [word.removeprefix("place_") for word in command[2::2]]
            return "".join(f"place_{key}='{self.folder}/{places.get(key, key)}'\n" for key in keys)
        answer = self.answers[command[0] + " " + command[1]]
        if isinstance(answer, ProcessError):
            raise answer
        return answer


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path / "etc")
    monkeypatch.setattr(process, "run", found.run)
    monkeypatch.setattr(process, "require", lambda program, package: program)
    (found.folder / "sources.list.d/debian.sources").write_text(OURS)
    (found.folder / "sources.list.d/extra.list").write_text(LINES)
    (found.folder / "sources.list.d/extra.list.disabled").write_text("deb http://no.example bookworm main\n")
    return found


def test_only_sources_of_the_release_come_along(machine: Machine, tmp_path: Path) -> None:
    apt.PrivateApt(tmp_path / "root", TARGET)
    kept = {path.name: path.read_text() for path in (tmp_path / "root/etc/sources.list.d").iterdir()}
    assert kept.keys() == {"debian.sources", "extra.list"}
    assert "Suites: bookworm bookworm-updates bookworm-backports\nComponents" in kept["debian.sources"]
    assert "Types: deb\n" in kept["debian.sources"]
    assert " xxxx" in kept["debian.sources"]
    assert "vendor" not in kept["debian.sources"]
    assert "off.example" not in kept["debian.sources"]
    assert kept["extra.list"].splitlines() == [LINES.splitlines()[1]]


def test_options_come_along_but_no_hooks_and_no_packages(machine: Machine, tmp_path: Path) -> None:
    apt.PrivateApt(tmp_path / "root", TARGET)
    text = (tmp_path / "root/apt.conf").read_text()
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in text
    assert 'Acquire::Check-Valid-Until "false";' in text
    assert "Invoke" not in text
    assert "Icons" not in text
    assert f'Dir::Etc::trustedparts "{machine.folder}/trustedparts";' in text
    assert (tmp_path / "root/state/status").read_text() == ""


def test_every_other_origin_is_pinned_away_last(machine: Machine, tmp_path: Path) -> None:
    apt.PrivateApt(tmp_path / "root", TARGET)
    pins = (tmp_path / "root/etc/preferences").read_text().split("\n\n")
    assert "Pin: release o=Debian,n=bookworm*\nPin-Priority: 500" in pins[0]
    assert "Pin: release *\nPin-Priority: -1" in pins[-1]


def test_a_machine_without_the_release_is_told_so(machine: Machine, tmp_path: Path) -> None:
    (machine.folder / "sources.list.d/debian.sources").unlink()
    (machine.folder / "sources.list.d/extra.list").unlink()
    with pytest.raises(UnavailableError, match="no package source that carries bookworm"):
        apt.PrivateApt(tmp_path / "root", TARGET)


def test_a_closure_is_read_from_what_apt_says(machine: Machine, tmp_path: Path) -> None:
    first, second = "a" * 64, "b" * 64
    machine.answers["apt-get install"] = (
        "Reading package lists...\n"
        f"'http://u:p@mirror.example/pool/g%2b%2b_1%3a2.0-3_amd64.deb' g++_1%3a2.0-3_amd64.deb 12 SHA256:{first}\n"
        f"'http://mirror.example/pool/jq_1.6_all.deb' jq_1.6_all.deb 34 SHA256:{second}\n"
    )
    machine.answers["apt-cache show"] = (
        f"Package: g++\nVersion: 1:2.0-3\nFilename: pool/g\nSize: 12\nSHA256: {first}\nDescription: a\n longer\n\n"
        f"Package: jq\nVersion: 1.5\nSHA256: {'c' * 64}\n\n"
        f"Package: jq\nVersion: 1.6\nMD5sum: 0\nSHA256: {second}\n"
    )
    found = apt.PrivateApt(tmp_path / "root", TARGET).closure(["g++", "jq"], "m.yml: debian.nodes")
    assert [(deb.name, deb.version, deb.filename, deb.size) for deb in found] == [
        ("g++", "1:2.0-3", "g++_2.0-3_amd64.deb", 12),
        ("jq", "1.6", "jq_1.6_all.deb", 34),
    ]
    assert found[0].stanza == "Package: g++\nVersion: 1:2.0-3\nDescription: a\n longer\n"
    assert apt.public_origin(found[0].uri) == "http://mirror.example/pool/g%2b%2b_1%3a2.0-3_amd64.deb"


def test_unknown_packages_are_listed_together(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get install"] = ProcessError(
        "apt-get ended with code 100:\n  E: Unable to locate package no-such\n"
        "  E: Package 'vendor-only' has no installation candidate"
    )
    with pytest.raises(InputError) as caught:
        apt.PrivateApt(tmp_path / "root", TARGET).closure(["x"], "m.yml: debian.nodes")
    assert str(caught.value).startswith("m.yml: debian.nodes: no such Debian package in bookworm: no-such, vendor-only")


def test_packages_that_conflict_say_what_apt_said(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get install"] = ProcessError("apt-get ended with code 100:\n  exim4 : Conflicts: mail")
    with pytest.raises(InputError, match=r"(?s)cannot be installed together.*Conflicts: mail.*groups of their own"):
        apt.PrivateApt(tmp_path / "root", TARGET).closure(["exim4", "postfix"], "m.yml: debian.nodes")


def test_a_silent_source_is_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get update"] = ProcessError("apt-get ended with code 100:\n  E: Failed to fetch")
    with pytest.raises(UnavailableError, match=r"(?s)source for bookworm does not answer.*Failed to fetch"):
        apt.PrivateApt(tmp_path / "root", TARGET).update()
