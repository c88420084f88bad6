from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import InputError, UnavailableError
from common.progress import silent
from reservoir.artifacts.kind import Resolving
from reservoir.artifacts.rpm.source import Repository, addresses, of_target
from reservoir.download.cache import Cache
from reservoir.manifest import credentials, reading
from reservoir.signing import openpgp

MANIFEST = """\
schema: 1
name: small
version: "1"
sources:
  - {{name: vendor, kind: rpm, url: "https://packages.example/el9", keys: [vendor.asc], unsigned_metadata: {unsigned}}}
targets:
  - {{name: el9, os: rpm, release: "9.4", arch: arm64, sources: [{sources}]}}
"""
REPOSITORY = """\
[base]
name=Base
baseurl=https://mirror.example/$contentdir/$releasever/${basearch}/os/
gpgkey=file:///etc/pki/key
repo_gpgcheck=1
[off]
baseurl=https://mirror.example/off/
enabled=0
"""


@pytest.fixture(scope="module")
def key() -> bytes:
    return openpgp.public_key(openpgp.new_key())


@pytest.fixture
def system(tmp_path: Path, key: bytes) -> Path:
    """A machine with a repository of its own."""
    for name, content in {
        "etc/yum.repos.d/base.repo": REPOSITORY.encode(),
        "etc/dnf/vars/contentdir": b"pub/rocky\n",
        "etc/pki/key": key,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def resolving(folder: Path, sources: str, *, unsigned: bool = False) -> Resolving:
    wanted = reading.load(MANIFEST.format(sources=sources, unsigned=str(unsigned).lower()), "manifest.yml")
    return Resolving(wanted, folder / "manifest.yml", Cache(folder / "cache"), silent)


def repositories(resolving: Resolving, system: Path = Path("/")) -> list[Repository]:
    return of_target(resolving, resolving.manifest.targets[0], system)


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_source_of_the_manifest_is_known_by_its_keys(tmp_path: Path, key: bytes, unsigned: bool) -> None:
    (tmp_path / "vendor.asc").write_bytes(key)
    (repository,) = repositories(resolving(tmp_path, "vendor", unsigned=unsigned))
    assert repository.url == "https://packages.example/el9/"
    assert [str(cert).encode() for cert in repository.keys] == [key]
    assert repository.signed is not unsigned


def test_the_machines_own_repositories_get_the_targets_release_and_architecture(system: Path) -> None:
    (repository,) = repositories(resolving(system, ""), system)
    assert (repository.name, repository.url) == ("base", "https://mirror.example/pub/rocky/9.4/aarch64/os/")
    assert repository.signed
    (system / "vendor.asc").write_bytes((system / "etc/pki/key").read_bytes())
    assert [found.name for found in repositories(resolving(system, "vendor, machine"), system)] == ["vendor", "base"]


def ask(system: Path, lines: str) -> None:
    """Let the machine's repository ask for a user and a password, as its file says."""
    path = system / "etc/yum.repos.d/base.repo"
    path.write_text(path.read_text().replace("[off]", f"{lines}\n[off]"))


LOGIN = "username=ada lovelace\npassword=a%b@c:/d"


def test_a_repository_is_asked_with_the_user_and_the_password_of_its_file(system: Path) -> None:
    ask(system, LOGIN)
    wanted = resolving(system, "")
    (repository,) = repositories(wanted, system)
    assert repository.url == "https://mirror.example/pub/rocky/9.4/aarch64/os/"
    for known in ([repository.address], addresses(wanted.manifest.targets, system)):
        (found,) = credentials.logins(known)
        assert (found.user, found.password) == ("ada lovelace", "a%b@c:/d")
        assert credentials.login([found], repository.url)


def test_a_user_in_the_file_goes_before_one_in_the_address(system: Path) -> None:
    path = system / "etc/yum.repos.d/base.repo"
    path.write_text(path.read_text().replace("https://mirror", "https://bob:other@mirror", 1))
    (found,) = credentials.logins(addresses(resolving(system, "").manifest.targets, system))
    assert found.user == "bob"
    ask(system, LOGIN)
    (found,) = credentials.logins(addresses(resolving(system, "").manifest.targets, system))
    assert found.user == "ada lovelace"


def test_this_machines_passwords_are_left_alone_where_no_target_asks_it(system: Path) -> None:
    ask(system, LOGIN)
    assert addresses(resolving(system, "vendor").manifest.targets, system) == []


@pytest.mark.parametrize(
    "line",
    [
        "excludepkgs=nginx*",
        "exclude=nginx",
        "includepkgs=a",
        "priority=1",
        "module_hotfixes=1",
        "proxy=http://p.example",
        "sslcacert=/etc/ca",
        "sslclientcert=/etc/mine.pem",
        "sslclientkey=/etc/mine.key",
    ],
)
def test_what_dnf_would_follow_and_a_lock_does_not_is_refused_by_name(system: Path, line: str) -> None:
    ask(system, line)
    with pytest.raises(InputError, match=f"base: it sets {line.partition('=')[0]}, which a lock does not follow"):
        repositories(resolving(system, ""), system)


def test_what_changes_nothing_is_not_refused(system: Path) -> None:
    ask(system, "priority=99\nexcludepkgs=\nmodule_hotfixes=false")
    assert repositories(resolving(system, ""), system)


@pytest.mark.parametrize("lines", ["a line of secret words", "[broken\nsecret"])
def test_a_file_that_cannot_be_read_is_told_without_its_words(system: Path, lines: str) -> None:
    ask(system, lines)
    with pytest.raises(InputError, match=r"base\.repo: line \d+ cannot be read") as caught:
        repositories(resolving(system, ""), system)
    assert "secret" not in str(caught.value)


def test_a_machine_without_repositories_is_told_to_name_a_source(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no package source for the RPM target el9.*`sources`"):
        repositories(resolving(tmp_path, ""), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("baseurl=https://mirror.example/$c", "mirrorlist=https://mirror.example/$c", "names no baseurl"),
        ("gpgkey=file:", "gpgkey=https:", "keys do not lie on this machine"),
        ("gpgkey=", "# gpgkey=", "keys do not lie on this machine"),
        ("/etc/pki/key", "/etc/pki/other", "the key other cannot be read"),
        ("/etc/pki/key", "/etc/dnf/vars/contentdir", "there are no OpenPGP keys in it"),
        ("[base]", "base", "cannot be read"),
    ],
)
def test_a_repository_that_cannot_be_trusted_is_named(system: Path, old: str, new: str, said: str) -> None:
    path = system / "etc/yum.repos.d/base.repo"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=said) as caught:
        repositories(resolving(system, ""), system)
    assert str(path) in str(caught.value)
