from __future__ import annotations

import ast
import base64
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.version import Version

from appliance.site.alone import alone
from common.errors import ConflictError, IntegrityError, PenstockError
from reservoir import settings
from reservoir.bundle import bundles
from reservoir.contents.artifact import Artifact, FileArtifact, PythonArtifact
from reservoir.intake import trust
from reservoir.intake.receipt import write as write_receipt
from reservoir.intake.store import Store
from reservoir.intake.take import take as imported
from reservoir.media import delta, needed, receipt, split
from reservoir.publication.due import require_sound
from reservoir.signing import ed25519, keychain
from reservoir.signing.keychain import Keychain
from tests.unit.reservoir.parts import artifact, flip_bit, make_bundle, take, wheel
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP

Run = Callable[..., int]


class Programs:
    """Stands for the programs that the installer starts: what they would make, and what they were asked."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []
        self.wheels: set[str] = set()
        self.code = 0

    def run(self, command: Sequence[str], check: bool = False, **around: object) -> Any:
        self.commands.append(command)
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir()
            python.with_name("penstock").touch()
            self.wheels = {path.name for path in (Path(command[-1]) / "wheels").iterdir()}
        elif check and self.code:
            raise BOOTSTRAP.subprocess.CalledProcessError(self.code, command)
        return SimpleNamespace(returncode=0 if "venv" in command else self.code)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    # the installer's own alone: bundles are made meanwhile
    own = SimpleNamespace(**vars(BOOTSTRAP.subprocess) | {"run": programs.run})
    monkeypatch.setattr(BOOTSTRAP, "subprocess", own)
    monkeypatch.setattr(BOOTSTRAP.os, "sync", lambda: None)
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    return programs


@pytest.fixture
def install(tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the installer of a bundle; return its exit code."""

    def run(folder: Path, *words: str | Path, first: str = "--trust-first") -> int:
        # tests of other things need no key
        places: list[str | Path] = [
            *([first] if first else []),
            "--prefix",
            tmp_path / "opt/site",
            "--command",
            tmp_path / "bin/penstock",
            "--root",
            tmp_path / "site",
            "--state",
            tmp_path / "state",
        ]
        monkeypatch.setattr(BOOTSTRAP, "__file__", str(folder / "bootstrap.py"))
        monkeypatch.setattr(sys, "argv", ["bootstrap.py", *map(str, [*places, *words])])
        return int(BOOTSTRAP.main())

    return run


def product(folder: Path, key: ed25519.SigningKey, version: str = "1.0", chain: Keychain | None = None) -> Path:
    """A bundle of Penstock, pip and one dependency that stays the same."""
    made = []
    for name in ("penstock", "pip", "steady"):
        path = wheel(folder, name=name, version=version if name == "penstock" else "1.0")
        if name != "penstock" and (folder / "kept" / path.name).exists():
            path.write_bytes((folder / "kept" / path.name).read_bytes())
        (folder / "kept").mkdir(exist_ok=True)
        (folder / "kept" / path.name).write_bytes(path.read_bytes())
        made.append((artifact(path, PythonArtifact, name, version if name == "penstock" else "1.0"), path))
    return make_bundle(folder, key, version=version, made=made, chain=chain)


def pem(folder: Path, key: ed25519.SigningKey) -> Path:
    path = folder / f"{ed25519.fingerprint(key.public_key())[:8]}.pub"
    path.write_bytes(ed25519.public_pem(key))
    return path


def pinned(prefix: Path) -> bytes:
    return (prefix / "bundle.pub").read_bytes()


def test_the_environment_is_made_beside_and_switched_at_the_end(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, programs: Programs
) -> None:
    prefix = tmp_path / "opt/site"
    for version in ("1.0", "2.0"):
        assert install(product(tmp_path, key, version)) == 0
        assert prefix.is_symlink()
        assert (tmp_path / "bin/penstock").resolve() == prefix.resolve() / "bin/penstock"
        assert programs.wheels == {
            f"{name}-py3-none-any.whl" for name in (f"penstock-{version}", "pip-1.0", "steady-1.0")
        }
        assert f"penstock[{BOOTSTRAP.EXTRAS}]=={version}" in programs.commands[-1]
    assert {path.name for path in prefix.parent.iterdir()} == {"site", prefix.resolve().name}
    assert prefix.resolve().stat().st_mode & 0o777 == 0o755


def test_the_key_that_was_checked_is_pinned_whatever_the_medium_shows_later(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prefix = product(tmp_path, key), tmp_path / "opt/site"
    installed = BOOTSTRAP.install

    def then_changed(*arguments: Any) -> int:
        (folder / "penstock.pub").write_bytes(ed25519.public_pem(Ed25519PrivateKey.generate()))
        return int(installed(*arguments))

    monkeypatch.setattr(BOOTSTRAP, "install", then_changed)
    (tmp_path / "linked.pub").symlink_to(pem(tmp_path, key))
    assert install(folder, "--key", tmp_path / "linked.pub") == 0
    assert pinned(prefix) == ed25519.public_pem(key)


@pytest.mark.parametrize("old", ["link", "folder"])
def test_a_failed_upgrade_leaves_the_old_one_as_it_was(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, old: str
) -> None:
    prefix = tmp_path / "opt/site"
    if old == "link":
        assert install(product(tmp_path, key)) == 0
    else:
        prefix.mkdir(parents=True)
    before = (prefix.is_symlink(), prefix.resolve(), sorted(path.name for path in prefix.parent.glob(".site-*")))
    programs.code = 1
    assert install(product(tmp_path, key, "2.0")) == 4
    assert before == (
        prefix.is_symlink(),
        prefix.resolve(),
        sorted(path.name for path in prefix.parent.glob(".site-*")),
    )
    programs.code = 0
    assert install(product(tmp_path, key, "2.0")) == 0
    assert prefix.is_symlink()


def test_nothing_is_installed_while_a_deploy_runs(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = product(tmp_path, key)
    with alone(tmp_path / "state"):
        assert install(folder) == 7
    assert f"a deploy or another installation is running (pid {os.getpid()}, started " in capsys.readouterr().err
    assert not (tmp_path / "opt/site").exists()
    assert install(folder) == 0


def test_no_deploy_runs_while_something_is_installed(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a+") as lock:
        BOOTSTRAP.take(lock)
        with pytest.raises(ConflictError, match=rf"still running \(pid {os.getpid()}, install.sh\)"), alone(tmp_path):
            pass


def test_what_a_killed_installation_left_is_cleared_away(tmp_path: Path, key: Ed25519PrivateKey, install: Run) -> None:
    left = tmp_path / "opt/.site-abcdefgh"
    (left / "bin").mkdir(parents=True)
    assert install(product(tmp_path, key)) == 0
    assert not left.exists()


def test_the_key_that_was_given_is_kept_over_upgrades(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prefix = tmp_path / "opt/site"
    assert install(product(tmp_path, key), "--key", pem(tmp_path, key)) == 0
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert settings.installer_key().read_bytes() == ed25519.public_pem(key)
    assert install(product(tmp_path, key, "2.0")) == 0
    assert pinned(prefix) == ed25519.public_pem(key)
    stranger = Ed25519PrivateKey.generate()
    assert install(product(tmp_path, stranger, "3.0")) == 3
    assert "does not belong to the key" in capsys.readouterr().err
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger)) == 3
    assert "--replace-key" in capsys.readouterr().err
    assert pinned(prefix) == ed25519.public_pem(key)
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger), "--replace-key") == 0
    assert pinned(prefix) == ed25519.public_pem(stranger)


def test_a_key_that_was_given_up_stays_so_before_the_site_has_imported_anything_by_the_new_one(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site, prefix, new = tmp_path / "site", tmp_path / "opt/site", Ed25519PrivateKey.generate()
    take(make_bundle(tmp_path / "first", key), site, key=key.public_key())
    assert install(product(tmp_path, key)) == 0
    spoken = ("--key", pem(tmp_path, new), "--replace-key")
    assert install(product(tmp_path, new, "2.0"), *spoken) == 0
    assert install(product(tmp_path, new, "2.0")) == 0, "installed already, and by the key that counts"
    assert install(product(tmp_path, new, "3.0")) == 0
    assert install(product(tmp_path, key, "4.0")) == 3, "the site's own pin is the one that was given up"
    assert f"this site trusts the key {ed25519.fingerprint(new.public_key())}" in capsys.readouterr().err
    known = trust.known(Store(site), prefix)
    assert known
    assert known.key == new.public_key()
    # and back, by the site's own word
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    old = make_bundle(tmp_path / "made", key, version="5.0")
    take(old, site, key=key.public_key(), replace_key=True)
    assert install(product(tmp_path, key, "5.0")) == 0


def test_a_key_that_nobody_vouches_for_installs_nothing(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prefix = product(tmp_path, key), tmp_path / "opt/site"
    name = ed25519.fingerprint(key.public_key())
    assert install(folder, first="") == 3
    assert f"signed by {name}, a key that this machine does not know" in (said := capsys.readouterr().err)
    assert "--trust-first" in said
    assert not prefix.exists()
    assert install(folder, "--verify-only", first="") == 0
    assert install(folder) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"{name}\nis the key that signed small 1.0, trusted at first sight with --trust-first" in "\n".join(told)
    assert name in told, "people compare what stands on a line of its own"
    assert install(folder, first="") == 0, "it is known from then on"
    assert install(product(tmp_path, key, "2.0"), "--key", pem(tmp_path, key), first="") == 0
    assert "given with --key" in capsys.readouterr().out
    noted = trust.known(Store(tmp_path / "site"), prefix)
    assert noted
    assert (noted.trust.fingerprint, noted.trust.how) == (name, "key")


def test_the_key_that_the_site_expects_counts_for_the_installer_too(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    take(product(tmp_path, key), tmp_path / "site")
    assert install(product(tmp_path, Ed25519PrivateKey.generate(), "2.0")) == 3
    assert install(product(tmp_path, key, "2.0")) == 0
    assert pinned(tmp_path / "opt/site") == ed25519.public_pem(key)


def test_the_installer_follows_the_chain_of_keys(tmp_path: Path, install: Run) -> None:
    path = tmp_path / "signing.key"
    first = ed25519.new_key(path)
    old = pem(tmp_path, first)
    for _ in range(2):
        keychain.rotate(path, 0)
    new = ed25519.read_key(path)
    chain = keychain.of_key(path, new)
    assert install(product(tmp_path, first), "--key", old) == 0
    assert install(product(tmp_path, new, "2.0", chain)) == 0
    assert pinned(tmp_path / "opt/site") == ed25519.public_pem(new)
    assert install(product(tmp_path, new, "3.0", chain), "--key", old) == 0
    assert install(product(tmp_path, first, "4.0")) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [('"number":1', '"number":3'), ("2026", "2027"), ('"date"', '"day"'), ("{", "["), ("{", "[" * 100_000)],
)
def test_the_installer_refuses_a_forged_chain(tmp_path: Path, install: Run, old: str, new: str) -> None:
    path = tmp_path / "signing.key"
    known = pem(tmp_path, ed25519.new_key(path))
    keychain.rotate(path, 1_767_323_045)
    key = ed25519.read_key(path)
    bundle = product(tmp_path, key, chain=keychain.of_key(path, key))
    chain = bundle / bundles.KEYS
    text = chain.read_text().replace(": ", ":")
    assert old in text
    chain.write_text(text.replace(old, new))
    assert install(bundle, "--key", known) == 3
    assert install(bundle) == 3


def test_a_delta_takes_the_other_wheels_from_the_site(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    take(product(tmp_path, key), site)
    (tmp_path / "receipt").write_bytes(write_receipt(site, 0).content)
    made = delta.make(product(tmp_path, key, "2.0"), *receipt.read(tmp_path / "receipt"), key)
    assert len(list((made / bundles.BLOBS).iterdir())) == 1
    assert install(made) == 0
    assert len(programs.wheels) == 3
    for path in Store(site).blobs.iterdir():
        flip_bit(path)
    assert install(made) == 3
    assert "was changed" in capsys.readouterr().err
    for path in Store(site).blobs.iterdir():
        path.unlink()
    assert install(made) == 3
    assert "neither the bundle nor the site has pip" in capsys.readouterr().err


def test_the_first_medium_is_enough_and_another_is_not(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(b"." * 2_000_000)
    made: list[tuple[Artifact, Path]] = [(artifact(big, FileArtifact, "big.bin"), big)]
    for name in ("penstock", "pip"):
        path = wheel(tmp_path, name=name)
        made.append((artifact(path, PythonArtifact, name), path))
    first, second, *_ = split.split(make_bundle(tmp_path, key, made=made), 1_500_000, key, tmp_path / "media")
    assert install(first) == 0
    assert install(second) == 3
    assert "the first medium" in capsys.readouterr().err
    for medium in (first, second):
        assert install(medium, "--verify-only") == 0
    assert "medium 2 of" in capsys.readouterr().out


def test_a_bundle_is_verified_with_python_alone(
    bundle: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    (bundle / "lost+found").mkdir()
    assert install(bundle, "--verify-only", "--key", pem(bundle.parent, key)) == 0
    assert capsys.readouterr().out.endswith(" bytes\n")
    assert programs.commands == []


def _flipped(bundle: Path) -> None:
    flip_bit(min((bundle / bundles.BLOBS).iterdir()))


def _missing(bundle: Path) -> None:
    min((bundle / bundles.BLOBS).iterdir()).unlink()


def _extra(bundle: Path) -> None:
    (bundle / "autorun.inf").touch()


def _extra_blob(bundle: Path) -> None:
    (bundle / bundles.BLOBS / "more").touch()


def _attachment(bundle: Path) -> None:
    (bundle / "sbom.cdx.json").write_text("[]")


def _list(bundle: Path) -> None:
    flip_bit(bundle / bundles.LIST)


def _endless(bundle: Path) -> None:
    path = min((bundle / bundles.BLOBS).iterdir())
    path.unlink()
    path.symlink_to("/dev/zero")


def _endless_list(bundle: Path) -> None:
    (bundle / bundles.LIST).unlink()
    (bundle / bundles.LIST).symlink_to("/dev/zero")


def _linked(bundle: Path, name: str) -> None:
    (bundle / name).rename(bundle.parent / "elsewhere")
    (bundle / name).symlink_to(bundle.parent / "elsewhere")


def _linked_list(bundle: Path) -> None:
    _linked(bundle, bundles.LIST)


def _linked_blobs(bundle: Path) -> None:
    _linked(bundle, str(bundles.BLOBS))


def _linked_folder(bundle: Path) -> None:
    _linked(bundle, str(bundles.BLOBS.parent))


@pytest.mark.parametrize(
    "damage",
    [
        *(_flipped, _missing, _extra, _extra_blob, _attachment, _list, _endless, _endless_list),
        *(_linked_list, _linked_blobs, _linked_folder),
    ],
)
def test_the_check_with_python_alone_finds_damage(
    bundle: Path, install: Run, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(bundle)
    assert install(bundle, "--verify-only") == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_an_old_python_is_told(
    bundle: Path, install: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert install(bundle) == 5
    assert capsys.readouterr().err == (
        "error: Penstock needs Python 3.11 or newer, this is 3.9. Hint: run it with a newer one.\n"
    )
    assert install(bundle, "--verify-only") == 0


def test_an_old_python_can_read_the_installer() -> None:
    source = bundles.installer("bootstrap.py").decode()
    tree = ast.parse(source, feature_version=(3, 7))
    assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    # what `datetime` has by this name since 3.11 alone
    assert not any(
        alias.name == "UTC" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    )


def test_a_machine_that_cannot_be_written_is_told(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "opt").write_text("in the way")
    assert install(product(tmp_path, key)) == 5
    assert "File exists. Hint: run as root" in capsys.readouterr().err


def test_a_bundle_for_another_python_is_told(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    assert install(product(tmp_path, key)) == 3
    assert "the bundle is for Python 3.11, this machine has 3.14" in capsys.readouterr().err


def test_media_bring_what_the_installer_asks_for() -> None:
    assert (f"penstock[{BOOTSTRAP.EXTRAS}]", "pip") == needed.ROOTS


VERSIONS = ["1.0", "1", "1.0.1", "1.0a1", "1.0.dev3", "1.0a1.dev2", "1.0rc1", "1.0.post1", "1.0-1", "1.0.post1.dev4"]
VERSIONS += [
    "2!0.1",
    "1.10",
    "1.9",
    "1.0+local.2",
    "1.0+local.10",
    "1.0+abc",
    "0",
    "0.0.1",
    "1.0b2.post3",
    "v1.0-preview_4",
]


def test_versions_are_ordered_as_everywhere() -> None:
    for one, other in itertools.product(VERSIONS, repeat=2):
        said = BOOTSTRAP.order(one) < BOOTSTRAP.order(other), BOOTSTRAP.order(one) == BOOTSTRAP.order(other)
        assert said == (Version(one) < Version(other), Version(one) == Version(other)), (one, other)


def test_an_older_version_needs_a_word(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    older = product(tmp_path, key)
    assert install(product(tmp_path, key, "2.0")) == 0
    (tmp_path / "opt/site/lib/python3.11/site-packages/penstock-2.0.dist-info").mkdir(parents=True)
    assert install(older) == 3
    assert "brings penstock 1.0, 2.0 is installed. Hint: say --allow-rollback" in capsys.readouterr().err
    assert install(older, "--allow-rollback") == 0
    take(product(tmp_path, key, "3.0"), tmp_path / "site")
    assert install(product(tmp_path, key, "2.0")) == 3
    assert "this site took 3.0 " in capsys.readouterr().err
    assert install(product(tmp_path, key, "3.0")) == 0


def test_the_installer_of_what_is_installed_checks_another_bundle(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    first, stranger = product(tmp_path, key), product(tmp_path, Ed25519PrivateKey.generate(), "2.0")
    assert install(first) == 0
    assert install(first, "--bundle", stranger) == 3
    assert install(first, "--bundle", product(tmp_path, key, "3.0")) == 0


def test_the_installer_shows_control_characters_and_does_not_do_them(
    bundle: Path, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (bundle / "\x1b[2J\n\u202egpj").touch()
    assert install(bundle, "--verify-only") == 3
    said = capsys.readouterr().err
    assert said.endswith(".\n")
    assert said.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        {"name": "penstock 0.9, signed by FINGERPRINT\x1b[8m"},
        {"name": "penstock\n"},
        {"name": "pen\u202estock"},
        {"name": None},
        {"version": "1.0, signed by FINGERPRINT\x1b[8m"},
        {"version": "1.0\n"},
        {"version": "\u0661.0"},
        {"version": 1},
        {"expires": "\x1b[8m"},
    ],
)
def test_a_bundle_cannot_write_what_people_compare(
    bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str], words: dict[str, object]
) -> None:
    """Whoever made a bundle signs it with a key of their own: nothing in it says whose it is."""
    listed = json.loads((bundle / bundles.LIST).read_text()) | words
    content = json.dumps(listed).encode()
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(base64.b64encode(key.sign(content)))
    assert install(bundle, "--verify-only") == 3
    said = capsys.readouterr()
    assert (said.out, "FINGERPRINT" in said.err) == ("", False)
    assert "\x1b" not in said.err


def test_a_chain_of_keys_is_short(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read before anybody is trusted, and each of its signatures takes time."""
    keys = [Ed25519PrivateKey.generate() for _ in range(65)] + [key]
    rotations = [
        keychain.statement(old, new.public_key(), 1 + at, 0) for at, (old, new) in enumerate(itertools.pairwise(keys))
    ]
    (bundle / bundles.KEYS).write_bytes(keychain.encode(Keychain(rotations=rotations)))
    assert install(bundle, "--verify-only") == 3
    assert "more than 64 keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "longest"), [(bundles.KEYS, 1 << 20), (bundles.PUBLIC_KEY, 4096), (bundles.SIGNATURE, 4096)]
)
def test_what_is_read_before_anybody_is_trusted_is_short(
    bundle: Path, install: Run, capsys: pytest.CaptureFixture[str], name: str, longest: int
) -> None:
    path = bundle / name
    path.touch()
    with path.open("ab") as file:
        file.truncate(longest + 1)
    assert install(bundle, "--verify-only") == 3
    assert f"{name}: is longer than any of its kind" in capsys.readouterr().err


def test_a_key_that_the_installer_saw_replaced_counts_no_more_before_the_site_has_imported_anything(
    tmp_path: Path, install: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site, prefix, path = tmp_path / "site", tmp_path / "opt/site", tmp_path / "signing.key"
    keys: list[ed25519.SigningKey] = [ed25519.new_key(path)]
    for _ in range(2):
        keychain.rotate(path, 0)
        keys.append(ed25519.read_key(path))
    chain = keychain.of_key(path, keys[2])
    first, second, third = keys
    part = Keychain(rotations=chain.rotations[:1])
    held = take(make_bundle(tmp_path / "first", first), site, key=first.public_key()).identity
    assert install(product(tmp_path, first)) == 0
    assert install(product(tmp_path, second, "2.0", part)) == 0
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert install(product(tmp_path, first, "2.5"), "--key", pem(tmp_path, first)) == 3
    assert f"this site trusts the key {ed25519.fingerprint(second.public_key())}" in capsys.readouterr().err
    with pytest.raises(IntegrityError, match="signed with a key that was replaced on"):
        take(make_bundle(tmp_path / "late", first, version="2.5"), site)
    require_sound(Store(site), held, read=True)
    assert install(product(tmp_path, third, "3.0", chain)) == 0
    assert install(product(tmp_path, third, "3.0", chain)) == 0, "installed already"
    assert install(product(tmp_path, second, "4.0", part)) == 3
    monkeypatch.setattr(sys, "prefix", str(prefix.resolve()))
    assert take(make_bundle(tmp_path / "made", third, version="4.0", chain=chain), site).changed
    assert keychain.read(Store(site).keychain) == chain
    require_sound(Store(site), held, read=True)


def test_the_installer_keeps_nothing_that_a_stranger_says_of_the_time_before_its_key(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    prefix, stranger, new = tmp_path / "opt/site", *(Ed25519PrivateKey.generate() for _ in range(2))
    poison = Keychain(rotations=[keychain.statement(stranger, key.public_key(), 1, 0)])
    assert install(product(tmp_path, key, chain=poison)) == 0
    assert not (prefix / trust.CHAIN).exists()
    honest = Keychain(rotations=[keychain.statement(key, new.public_key(), 1, 0)])
    assert install(product(tmp_path, new, "2.0", honest)) == 0
    assert keychain.read(prefix / trust.CHAIN) == honest
    assert install(product(tmp_path, stranger, "3.0"), "--key", pem(tmp_path, stranger), "--replace-key") == 0
    assert not (prefix / trust.CHAIN).exists()


class Machine:
    """A site and what `install.sh` keeps beside it; both are asked whose bundles count."""

    def __init__(self, folder: Path, install: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.site, self.prefix = folder, folder / "site", folder / "opt/site"
        self._install, self._monkeypatch, self._made = install, monkeypatch, 0

    def made(self, key: ed25519.SigningKey, chain: Keychain | None = None) -> Path:
        self._made += 1
        return product(self.folder, key, f"{self._made}.0", chain)

    def install(self, key: ed25519.SigningKey, chain: Keychain | None = None, replace: bool = False) -> int:
        words = ("--key", pem(self.folder, key), "--replace-key") if replace else ()
        code = self._install(self.made(key, chain), *words, first="")
        self._monkeypatch.setattr(sys, "prefix", str(self.prefix.resolve()))
        return code

    def take(self, key: ed25519.SigningKey, chain: Keychain | None = None, replace: bool = False) -> bool:
        words: dict[str, Any] = {"key": key.public_key(), "replace_key": True} if replace else {}
        # not the one of the tests, which trusts whatever comes first
        return imported(self.made(key, chain), self.site, **words).changed

    @property
    def counts(self) -> set[bytes]:
        """The keys that count, for the next import and for the next installation."""
        pin = BOOTSTRAP.pin_of(SimpleNamespace(root=self.site, prefix=self.prefix))
        known = trust.expected_key(Store(self.site))
        return {
            ed25519.read_public(pin.read_bytes(), "").public_bytes_raw(),
            known.public_bytes_raw() if known else b"",
        }


@pytest.fixture
def machine(tmp_path: Path, key: Ed25519PrivateKey, install: Run, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose site trusts `key`."""
    machine = Machine(tmp_path, install, monkeypatch)
    imported(machine.made(key), machine.site, key=key.public_key())
    return machine


def bytes_of(key: ed25519.SigningKey) -> set[bytes]:
    return {key.public_key().public_bytes_raw()}


def test_the_sites_own_word_gives_up_a_key_that_the_installer_followed(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    forged = Ed25519PrivateKey.generate()
    chain = Keychain(rotations=[keychain.statement(key, forged.public_key(), 1, 0)])
    assert machine.install(forged, chain) == 0
    assert machine.counts == bytes_of(forged)
    assert machine.take(key, replace=True)
    assert machine.counts == bytes_of(key)
    assert machine.take(key)
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(forged, chain)
    assert machine.install(forged, chain) == 3
    later = Ed25519PrivateKey.generate()
    longer = Keychain(rotations=[*chain.rotations, keychain.statement(forged, later.public_key(), 2, 0)])
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(later, longer)
    assert machine.install(later, longer) == 3
    assert machine.take(forged, chain, replace=True), "unless an administrator wants it again"
    assert machine.counts == bytes_of(forged)


def test_a_key_that_was_replaced_before_another_was_given_up_stays_refused(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    leaked, new = (Ed25519PrivateKey.generate() for _ in range(2))
    assert machine.install(leaked, Keychain(rotations=[keychain.statement(key, leaked.public_key(), 1, 0)])) == 0
    assert machine.install(new, replace=True) == 0
    assert machine.counts == bytes_of(new)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        machine.take(key)
    assert machine.install(key) == 3
    assert machine.take(new)


def test_keys_that_were_given_up_one_after_another_stay_refused(machine: Machine, key: Ed25519PrivateKey) -> None:
    keys = [key, *(Ed25519PrivateKey.generate() for _ in range(3))]
    for new in keys[1:]:
        assert machine.install(new, replace=True) == 0
        assert machine.counts == bytes_of(new)
    for old in keys[:-1]:
        assert machine.install(old) == 3
        with pytest.raises(IntegrityError, match="does not belong to the key"):
            machine.take(old)
    assert machine.take(keys[-1])


def test_who_speaks_last_is_heard_however_often_the_key_goes_to_and_fro(
    machine: Machine, key: Ed25519PrivateKey
) -> None:
    """All within one day, so that no day tells which word came last."""
    other = Ed25519PrivateKey.generate()
    for new in (other, key, other, key):
        assert machine.install(new, replace=True) == 0
        assert machine.counts == bytes_of(new)
    for new in (other, key, other):
        assert machine.take(new, replace=True)
        assert machine.counts == bytes_of(new)
        assert machine.install(new) == 0
    assert machine.install(key, replace=True) == 0
    assert machine.counts == bytes_of(key)


def test_records_of_before_all_keys_were_kept_count(machine: Machine, key: Ed25519PrivateKey) -> None:
    leaked, new = (Ed25519PrivateKey.generate() for _ in range(2))

    def as_before(path: Path) -> None:
        noted = json.loads(path.read_text())
        noted.pop("before", None)
        path.write_text(json.dumps(noted))

    assert machine.install(leaked, Keychain(rotations=[keychain.statement(key, leaked.public_key(), 1, 0)])) == 0
    as_before(machine.prefix / trust.RECORD)
    assert machine.counts == bytes_of(leaked)
    assert machine.install(new, replace=True) == 0
    assert machine.counts == bytes_of(new), "the chain said what was replaced"
    assert machine.take(key, replace=True)
    as_before(machine.prefix / trust.RECORD)
    as_before(machine.site / "keys" / trust.RECORD)
    assert machine.counts == bytes_of(key)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 1.0},
        {"number": True},
        {"note": "more"},
        {"date": "2026-1-1"},
        {"date": 20260101},
        {"signature": None},
        {"old": "A" * 64},
    ],
)
def test_the_installer_takes_of_a_chain_what_the_program_takes(
    machine: Machine, key: Ed25519PrivateKey, change: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing signs `keys.json` as a whole, and what the installer kept of it locked every import out."""
    new = Ed25519PrivateKey.generate()
    chain = Keychain(rotations=[keychain.statement(key, new.public_key(), 1, 0)])
    bundle = machine.made(new, chain)
    said = json.loads((bundle / bundles.KEYS).read_text())
    said["rotations"][0] |= change
    (bundle / bundles.KEYS).write_text(json.dumps(said))
    assert machine._install(bundle, first="") == 3
    assert "not a chain of keys" in capsys.readouterr().err
    (bundle / bundles.KEYS).write_text(json.dumps(said | {"rotations": [], "note": "more"}))
    assert machine._install(bundle, first="") == 3
    assert machine.install(new, chain) == 0
    assert machine.take(new, chain)


def test_the_installer_takes_a_file_with_one_key_alone_and_keeps_the_key(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program may read another one of two blocks."""
    own, other = (ed25519.public_pem(one) for one in (key, Ed25519PrivateKey.generate()))
    for text in (other.replace(b"PUBLIC KEY", b"CERTIFICATE") + own, own + other, b"a word\n" + own):
        (bundle / bundles.PUBLIC_KEY).write_bytes(text)
        assert install(bundle, "--verify-only") == 3
        assert "not an Ed25519 public key" in capsys.readouterr().err
    whole = product(tmp_path, key)
    (whole / bundles.PUBLIC_KEY).write_bytes(b"\n" + own.replace(b"\n", b"\r\n"))
    assert install(whole) == 0
    assert pinned(tmp_path / "opt/site") == own


@pytest.mark.parametrize("damaged", [trust.PINNED, trust.CHAIN, trust.RECORD])
def test_what_is_kept_and_damaged_does_not_count_against_who_gives_it_up(
    machine: Machine, key: Ed25519PrivateKey, damaged: str
) -> None:
    new = Ed25519PrivateKey.generate()
    assert machine.install(key) == 0
    (machine.prefix / damaged).write_text("[]")
    with pytest.raises(PenstockError):
        machine.take(key)
    assert machine.install(key) == 3
    assert machine.take(new, replace=True)
    assert machine.install(new, replace=True) == 0
    assert machine.take(new)


def test_no_more_of_a_file_is_copied_than_its_list_says(tmp_path: Path) -> None:
    long, copy = tmp_path / "long", tmp_path / "copy"
    with long.open("wb") as file:
        file.truncate(5_000_000)
    with pytest.raises(BOOTSTRAP.RefusedError, match="was changed"):
        BOOTSTRAP.copied(long, copy, "0" * 64, 1_500_000)
    assert copy.stat().st_size == 1_500_001


def test_nothing_of_the_callers_folder_or_environment_runs(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """It may be the medium, and who hands one on can put files there that nobody signed."""
    foreign, ran = tmp_path / "foreign", tmp_path / "ran"
    foreign.mkdir()
    for name in ("venv", "pip", "argparse", "sitecustomize", "zipfile"):
        (foreign / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    penstock, pip = (wheel(tmp_path, name=name) for name in ("penstock", "pip"))
    with zipfile.ZipFile(pip, "a") as file:
        file.writestr("pip/__main__.py", "import pathlib, sys\npathlib.Path(sys.prefix, 'bin/penstock').touch()\n")
    made = [(artifact(path, PythonArtifact, path.name.split("-")[0]), path) for path in (penstock, pip)]
    bundle = make_bundle(tmp_path, key, made=made)
    places = {"prefix": "opt/site", "command": "bin/penstock", "root": "site", "state": "state"}
    words = [word for name, place in places.items() for word in (f"--{name}", str(tmp_path / place))]
    command = [sys.executable, "-I", str(bundles.installer_path("bootstrap.py")), "--bundle", str(bundle)]
    around: dict[str, Any] = {"cwd": foreign, "env": {"PATH": os.environ["PATH"], "PYTHONPATH": str(foreign)}}
    done = subprocess.run([*command, "--trust-first", *words], check=False, capture_output=True, text=True, **around)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bin/penstock").resolve().exists()
    assert not ran.exists()


@pytest.mark.parametrize("damage", [_extra, _extra_blob])
def test_a_bundle_with_files_in_no_list_installs_nothing(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    programs: Programs,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = product(tmp_path, key)
    damage(bundle)
    assert install(bundle) == 3
    assert "is not in the bundle's list" in capsys.readouterr().err
    assert programs.commands == []


def _listed(**changes: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | changes).encode()


ODD: dict[str, Sequence[Any]] = {
    "artifacts": ("x", 5, None, [{}], [[]]),
    "installer": (None, [], {"../x": "0" * 64}),
    "attachments": (None, [], {"x": "0"}),
    "created": (None, 1),
    "targets": (None, [1], [{"name": []}]),
    "version": ("1" * 5000, []),
    "expires": ([1], 1),
}


@pytest.mark.parametrize(
    "odd",
    [
        *(lambda _, text=text: text for text in (b"[]", b"{", b"5", b"null", b"\xff\xfe", b'{"schema": 1}')),
        *(lambda _, text=text: text for text in (b"[" * 200_000, b'{"schema": 1, "x": ' + b"9" * 5000 + b"}")),
        *(_listed(**{name: value}) for name, values in ODD.items() for value in values),
        lambda content: content.replace(b'"sha256": "', b'"sha256": "../'),
        lambda content: content.replace(b'"size": ', b'"size": 0.'),
        lambda content: content.replace(b'"filename": "', b'"filename": "\\u0000'),
    ],
)
def test_an_odd_list_is_refused_in_words(
    bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str], odd: Any
) -> None:
    """Whoever made a bundle signs it with a key of their own."""
    before = (bundle / bundles.LIST).read_bytes()
    content = odd(before)
    assert content != before
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(base64.b64encode(key.sign(content)))
    for word in ("--verify-only", "--trust-first"):
        assert install(bundle, word, first="") == 3
        said = capsys.readouterr()
        assert (said.out, said.err[:7], said.err.count("\n")) == ("", "error: ", 1)
        assert "bundle.json: " in said.err
    assert install(bundle, first="") == 3
    assert "a key that this machine does not know" in capsys.readouterr().err, "who is not trusted is not read"


@pytest.mark.parametrize(
    "change", [{"number": 0}, {"number": 99}, {"number": "1"}, {"files": [["0" * 64]]}, {"files": {}}, {"cut": []}]
)
def test_an_odd_medium_is_refused_in_words(
    tmp_path: Path,
    bundle: Path,
    key: Ed25519PrivateKey,
    install: Run,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
) -> None:
    medium, *_ = split.split(bundle, 2_300_000, key, tmp_path / "media")
    content = json.dumps(json.loads((medium / "volume.json").read_text()) | change).encode()
    (medium / "volume.json").write_bytes(content)
    (medium / "volume.json.sig").write_bytes(base64.b64encode(key.sign(content)))
    assert install(medium, "--verify-only") == 3
    assert "volume.json: " in capsys.readouterr().err


def statements(*keys: ed25519.SigningKey) -> Keychain:
    steps = enumerate(itertools.pairwise(keys), 1)
    return Keychain(rotations=[keychain.statement(old, new.public_key(), at, 0) for at, (old, new) in steps])


def test_each_statement_of_a_chain_is_checked_once(
    machine: Machine, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key, *(Ed25519PrivateKey.generate() for _ in range(2))]
    chain = statements(*keys)
    assert machine.take(keys[-1], chain)
    points: list[bytes] = []
    read = BOOTSTRAP.decompress

    def counted(data: bytes) -> Any:
        points.append(data)
        return read(data)

    monkeypatch.setattr(BOOTSTRAP, "decompress", counted)
    assert machine.install(keys[-1], chain) == 0
    assert [points.count(old.public_key().public_bytes_raw()) for old in keys] == [1, 1, 1]


@pytest.mark.parametrize("at_the_site", [True, False])
def test_who_replaces_a_key_by_itself_gives_up_those_before_it(
    machine: Machine, key: Ed25519PrivateKey, at_the_site: bool
) -> None:
    """The chain that told of them is kept no more."""
    between, new = (Ed25519PrivateKey.generate() for _ in range(2))
    chain, back = statements(key, between, new), statements(new, between)
    if at_the_site:
        assert machine.take(new, chain)
        assert machine.take(new, replace=True)
    else:
        assert machine.install(new, chain) == 0
        assert machine.install(new, replace=True) == 0
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(between, back)
    assert machine.install(between, back) == 3
    assert machine.counts == bytes_of(new)


class Installed:
    """A machine whose site trusts a key that `install.sh` gave up, and its bundle by the one that follows."""

    def __init__(self, machine: Machine, key: Ed25519PrivateKey) -> None:
        self.machine, self.given_up = machine, key
        self.old, self.new = (Ed25519PrivateKey.generate() for _ in range(2))
        self.chain = statements(self.old, self.new)
        bundle = product(machine.folder, self.old, "7.0")
        assert machine._install(bundle, "--key", pem(machine.folder, self.old), "--replace-key", first="") == 0
        (machine.prefix / "bin/python").symlink_to(sys.executable)
        self.place = machine.prefix.resolve()
        self.bundle = product(machine.folder, self.new, "7.0", self.chain)
        names = (trust.RECORD, trust.CHAIN, trust.PINNED)
        self.files = {name: (self.place / name).read_bytes() for name in names if (self.place / name).exists()}

    def install(self) -> int:
        """Install it again from the beginning, which changes the key in place."""
        for path in self.place.glob("*bundle.*.*"):
            path.unlink()
        for name, content in self.files.items():
            (self.place / name).write_bytes(content)
        return self.again()

    def again(self) -> int:
        code = self.machine._install(self.bundle, first="")
        assert self.machine.prefix.resolve() == self.place, "what stands is not installed anew"
        return code

    def holds(self) -> None:
        """Nothing that was given up counts, for neither of both who ask."""
        assert self.machine.counts in (bytes_of(self.old), bytes_of(self.new))
        known = trust.known(Store(self.machine.site), self.place)
        assert known
        name = ed25519.fingerprint(self.given_up.public_key())
        assert name in known.earlier
        assert name in BOOTSTRAP.earlier(self.place / trust.PINNED, False)


@pytest.fixture
def installed(machine: Machine, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Installed:
    installed = Installed(machine, key)
    monkeypatch.setattr(sys, "prefix", str(installed.place))
    return installed


def test_a_full_disk_leaves_what_is_noted_of_the_key_as_it_was(tmp_path: Path) -> None:
    """A record cut short would say that no key was given up."""
    rotation = keychain.statement(Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate().public_key(), 1, 0)
    folder = tmp_path / "kept"
    folder.mkdir()
    given_up = {"fingerprint": "c" * 64, "how": "key", "before": ["a" * 64]}
    BOOTSTRAP.pin(folder, SimpleNamespace(key=b"c" * 32), given_up, [rotation.model_dump()])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # no file may grow meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for key, chain in ((b"c", [rotation.model_dump()] * 2), (b"d", [])):
            with pytest.raises(OSError, match="too large"):
                BOOTSTRAP.pin(folder, SimpleNamespace(key=key * 32), given_up | {"before": []}, chain)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_leaves_what_is_known_of_keys(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # enough for the lock
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, before[1]))
        code = installed.again()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert code == 5
    installed.holds()
    assert installed.again() == 0


def test_a_change_of_the_key_may_be_cut_off_anywhere(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = 0
    for steps in itertools.count():
        left = iter(range(steps))

        def step(*_: object, left: Any = left) -> None:
            if next(left, None) is None:
                raise OSError(5, "the power is cut")

        with monkeypatch.context() as patch:
            patch.setattr(BOOTSTRAP.os, "fsync", step)
            patch.setattr(BOOTSTRAP.os, "sync", step)
            code = installed.install()
        installed.holds()
        if code == 0:
            break
        cut_off += 1
        assert installed.again() == 0
        assert keychain.read(installed.place / trust.CHAIN) == installed.chain
        known = trust.known(Store(installed.machine.site), installed.place)
        assert known
        assert known.key == installed.new.public_key()
    assert cut_off == 6, "before and after each of three files"


def test_what_is_known_of_keys_is_not_written_anew(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.install() == 0
    written: list[Path] = []
    monkeypatch.setattr(BOOTSTRAP.os, "fsync", written.append)
    assert installed.again() == 0
    assert not written


def test_the_site_forgets_no_key_that_the_installer_saw_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own chain goes on with the installer's from where both meet, which is not where that one began."""
    first, between, last = (Ed25519PrivateKey.generate() for _ in range(3))
    back = machine.made(between, statements(last, between))
    assert imported(back, machine.site, key=last.public_key(), replace_key=True).changed
    whole = machine.made(last, statements(first, between, last))
    assert machine._install(whole, "--key", pem(machine.folder, first), "--replace-key", first="") == 0
    monkeypatch.setattr(sys, "prefix", str(machine.prefix.resolve()))
    assert machine.take(last, replace=True)
    with pytest.raises(IntegrityError, match="was given up for it, or follows one that was"):
        machine.take(first, statements(last, first))
    assert machine.install(first, statements(last, first)) == 3
