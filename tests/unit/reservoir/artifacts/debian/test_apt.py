from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common import process
from common.errors import InputError, IntegrityError, ProcessError, UnavailableError
from reservoir.artifacts.debian import apt
from reservoir.manifest import credentials
from reservoir.manifest.model import Manifest, Source, Target, VersionSet

TARGET = Target(name="debian12", release="bookworm", python="3.11", bootstrap=True)
OURS = """\
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-security
Components: main
Signed-By: /k.gpg
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
                'Acquire::Check-Valid-Until "false";\nAcquire::AllowInsecureRepositories "1";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
                'Acquire::IndexTargets::deb::Icons::DefaultEnabled "true";\n'
                'APT::Update::Post-Invoke:: "touch /tmp/hooked";\nDPkg::Post-Invoke:: "needrestart";\n'
            )
        if command[:2] == ["apt-config", "shell"]:
            places = {"sourcelist": "sources.list", "sourceparts": "sources.list.d/"}
            keys = [word.removeprefix("place_") for word in command[2::2]]
            return "".join(f"place_{key}='{self.folder}/{places.get(key, key)}'\n" for key in keys)
        answer = self.answers[f"{command[0]} {command[1]}"]
        if isinstance(answer, ProcessError):
            raise answer
        return answer


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path / "etc")
    monkeypatch.setattr(process, "run", found.run)
    monkeypatch.setattr(process, "require", lambda program, *_: program)
    (found.folder / "sources.list.d/debian.sources").write_text(OURS)
    return found


def private(tmp_path: Path, target: Target = TARGET, **parts: object) -> apt.PrivateApt:
    """Return apt for one target of a manifest with these parts."""
    wanted = Manifest.model_validate(
        {"schema": 1, "name": "demo", "version": "1", "targets": [target.model_dump()]} | parts
    )
    return apt.PrivateApt(tmp_path / "root", target, wanted, tmp_path)


def preferences(tmp_path: Path) -> list[str]:
    return (tmp_path / "root/etc/preferences").read_text().strip().split("\n\n")


def entries(tmp_path: Path) -> str:
    return (tmp_path / "root/etc/sources.list.d/target.sources").read_text()


def test_options_come_along_but_no_hooks_and_no_packages(machine: Machine, tmp_path: Path) -> None:
    private(tmp_path)
    text = (tmp_path / "root/apt.conf").read_text()
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in text
    assert "Invoke" not in text
    assert "Icons" not in text
    assert f'Dir::Etc::trustedparts "{machine.folder}/trustedparts";' in text
    assert (tmp_path / "root/state/status").read_text() == ""


def test_what_the_machine_thinks_of_signatures_and_ages_does_not_come_along(machine: Machine, tmp_path: Path) -> None:
    private(tmp_path)
    text = (tmp_path / "root/apt.conf").read_text()
    assert "Valid-Until" not in text
    assert "AllowInsecure" not in text


def test_release_updates_and_security_may_go_in_and_nothing_else(machine: Machine, tmp_path: Path) -> None:
    private(tmp_path)
    assert [pin.splitlines()[1:] for pin in preferences(tmp_path)] == [
        ["Pin: release o=Debian,n=bookworm", "Pin-Priority: 500"],
        ["Pin: release o=Debian,n=bookworm-updates", "Pin-Priority: 500"],
        ["Pin: release o=Debian,n=bookworm-security", "Pin-Priority: 500"],
        ["Pin: release *", "Pin-Priority: -1"],
    ]


def test_version_sets_are_pinned_before_all_else(machine: Machine, tmp_path: Path) -> None:
    packages = {"driver": "580.65.*", "headers": "*"}
    private(tmp_path, version_sets=[VersionSet(name="gpu", packages=packages).model_dump()])
    assert preferences(tmp_path)[0] == "Package: driver\nPin: version 580.65.*\nPin-Priority: 1001"
    assert "headers" not in (tmp_path / "root/etc/preferences").read_text()


def test_only_what_the_manifest_names_may_be_past_its_time(machine: Machine, tmp_path: Path) -> None:
    private(tmp_path, allow_expired=["bookworm-security"])
    (kept,) = [text for text in entries(tmp_path).split("\n\n") if "Check-Valid-Until: no" in text]
    assert "Suites: bookworm-security" in kept


def test_a_source_of_the_manifest_may_be_past_its_time_by_its_name(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    source = Source(name="disk", kind="debian", url="file:///srv/apt", keys=["key.asc"], suite="x")
    target = TARGET.model_copy(update={"sources": ["disk"]})
    private(tmp_path, target, sources=[source.model_dump()], allow_expired=["disk"])
    assert "Check-Valid-Until: no" in entries(tmp_path)


def test_a_source_of_the_manifest_stands_beside_the_machines(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "vendor.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    (tmp_path / "other.gpg").write_bytes(b"\x99")
    vendor = Source(
        name="vendor", kind="debian", url="https://vendor.example/apt", keys=["vendor.asc", "other.gpg"], suite="./"
    )
    target = TARGET.model_copy(update={"sources": ["machine", "vendor"]})
    private(tmp_path, target, sources=[vendor.model_dump()])
    keys = tmp_path / "root/etc/keys"
    assert f"Suites: ./\nSigned-By: {keys}/vendor-0.asc {keys}/vendor-1.gpg" in entries(tmp_path)
    assert "URIs: http://mirror.example/debian" in entries(tmp_path)
    assert 'Package: *\nPin: origin "vendor.example"\nPin-Priority: 500' in preferences(tmp_path)


def test_a_target_that_names_its_sources_needs_none_of_the_machine(machine: Machine, tmp_path: Path) -> None:
    (machine.folder / "sources.list.d/debian.sources").unlink()
    (tmp_path / "key.asc").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    source = Source(name="disk", kind="debian", url="file:///srv/apt", keys=["key.asc"], suite="x", components=["main"])
    private(tmp_path, TARGET.model_copy(update={"sources": ["disk"]}), sources=[source.model_dump()])
    assert "URIs: copy:/srv/apt\nSuites: x\nComponents: main\n" in entries(tmp_path)
    assert "-1" not in (tmp_path / "root/etc/preferences").read_text()


def test_a_key_that_is_not_there_is_named(machine: Machine, tmp_path: Path) -> None:
    source = Source(name="disk", kind="debian", url="file:///srv/apt", keys=["key.asc"], suite="x")
    with pytest.raises(InputError, match=r"source disk: the key key.asc cannot be read"):
        private(tmp_path, TARGET.model_copy(update={"sources": ["disk"]}), sources=[source.model_dump()])


def test_a_machine_without_the_release_is_told_so(machine: Machine, tmp_path: Path) -> None:
    (machine.folder / "sources.list.d/debian.sources").unlink()
    with pytest.raises(UnavailableError, match=r"no package source that carries bookworm.*manifest's `sources`"):
        private(tmp_path)


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
    found = private(tmp_path).closure(["g++", "jq"], "m.yml: debian.nodes")
    assert [(deb.name, deb.version, deb.filename, deb.size) for deb in found] == [
        ("g++", "1:2.0-3", "g++_2.0-3_amd64.deb", 12),
        ("jq", "1.6", "jq_1.6_all.deb", 34),
    ]
    assert found[0].stanza == "Package: g++\nVersion: 1:2.0-3\nDescription: a\n longer\n"
    assert credentials.public(found[0].uri) == "http://mirror.example/pool/g%2b%2b_1%3a2.0-3_amd64.deb"


def test_packages_are_fetched_by_the_program_beside_apts_methods_wherever_these_lie(
    machine: Machine, tmp_path: Path
) -> None:
    asked = private(tmp_path)
    with pytest.raises(KeyError, match=f"{machine.folder}/apt-helper download-file"):
        asked.download([("http://mirror.example/a.deb", "a" * 64, tmp_path / "a.deb")])
    machine.answers[f"{machine.folder}/apt-helper download-file"] = ""
    asked.download([("http://mirror.example/a.deb", "a" * 64, tmp_path / "a.deb")])


def test_a_machine_without_apt_is_told_what_helps(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(UnavailableError, match=r"apt-get is not installed.*container of Debian"):
        private(tmp_path)


def test_ubuntu_tells_its_updates_apart_by_suites(machine: Machine, tmp_path: Path) -> None:
    (machine.folder / "sources.list.d/debian.sources").write_text(OURS.replace("bookworm", "jammy"))
    private(tmp_path, TARGET.model_copy(update={"release": "jammy"}))
    # all of them have the code name of the release, its backports as well
    assert [one.splitlines()[1] for one in preferences(tmp_path)] == [
        "Pin: release o=Ubuntu,a=jammy",
        "Pin: release o=Ubuntu,a=jammy-updates",
        "Pin: release o=Ubuntu,a=jammy-security",
        "Pin: release *",
    ]


def test_a_virtual_package_lists_who_provides_it(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get install"] = ProcessError(
        "apt-get ended with code 100:\n  E: Package 'mail-transport-agent' has no installation candidate"
    )
    machine.answers["apt-cache showpkg"] = (
        "Package: mail-transport-agent\nVersions: \n\nReverse Depends: \n  mailutils,mail-transport-agent\n"
        "Dependencies: \nProvides: \nReverse Provides: \n"
        "postfix 3.7.11-0+deb12u1 (= )\npostfix 3.7.9-0 (= )\ndma 0.13-1 (= )\n"
    )
    with pytest.raises(InputError) as caught:
        private(tmp_path).closure(["mail-transport-agent"], "m.yml: debian.nodes")
    assert str(caught.value) == (
        "m.yml: debian.nodes: mail-transport-agent is a virtual package, which several others provide. "
        "Hint: list one of: dma, postfix"
    )


def test_unknown_packages_are_listed_together(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get install"] = ProcessError(
        "apt-get ended with code 100:\n  E: Unable to locate package no-such\n"
        "  E: Package 'vendor-only' has no installation candidate"
    )
    machine.answers["apt-cache showpkg"] = "Package: vendor-only\nReverse Provides: \n"
    with pytest.raises(InputError) as caught:
        private(tmp_path).closure(["x"], "m.yml: debian.nodes")
    assert str(caught.value).startswith("m.yml: debian.nodes: no such Debian package in bookworm: no-such, vendor-only")


def test_packages_that_conflict_say_what_apt_said(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get install"] = ProcessError("apt-get ended with code 100:\n  exim4 : Conflicts: mail")
    with pytest.raises(InputError, match=r"(?s)cannot be installed together.*Conflicts: mail.*groups of their own"):
        private(tmp_path).closure(["exim4", "postfix"], "m.yml: debian.nodes")


def test_a_silent_source_is_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.answers["apt-get update"] = ProcessError("apt-get ended with code 100:\n  E: Failed to fetch")
    with pytest.raises(UnavailableError, match=r"(?s)source for bookworm does not answer.*Failed to fetch"):
        private(tmp_path).update()


def test_metadata_past_its_time_is_an_error_of_its_source(machine: Machine, tmp_path: Path) -> None:
    said = "E: Release file for http://m.example/dists/x/InRelease is expired (invalid since 3d). Updates for"
    machine.answers["apt-get update"] = ProcessError(said)
    with pytest.raises(IntegrityError, match=r"^http://m.example/dists/x/InRelease: .*past the time.*allow_expired"):
        private(tmp_path).update()


def test_a_source_without_a_good_signature_is_an_error_of_its_source(machine: Machine, tmp_path: Path) -> None:
    said = "W: GPG error: NO_PUBKEY 1\n  E: The repository 'http://m.example/debian trixie InRelease' is not signed."
    machine.answers["apt-get update"] = ProcessError(said)
    with pytest.raises(IntegrityError, match=r"(?s)^http://m.example/debian: .*NO_PUBKEY 1.*debian-archive-keyring"):
        private(tmp_path).update()
