"""What is installed checks what comes to replace it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site import upgrade
from reservoir.bundle import bundles
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import make_bundle


def upgraded(tmp_path: Path, bundle: Path) -> subprocess.CompletedProcess[str]:
    """Check a bundle as an upgrade of a site below a scratch folder would."""
    places: list[str | Path] = [
        "--root",
        tmp_path / "site",
        "--prefix",
        tmp_path / "opt",
        "--state",
        tmp_path / "state",
    ]
    command = upgrade.command(bundle, [*places, "--command", tmp_path / "penstock", "--verify-only"])
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def key(tmp_path: Path) -> Ed25519PrivateKey:
    """The key that the site trusts."""
    made = Ed25519PrivateKey.generate()
    (tmp_path / "site/keys").mkdir(parents=True)
    (tmp_path / "site/keys/bundle.pub").write_bytes(ed25519.public_pem(made))
    return made


def test_a_bundle_by_the_trusted_key_is_whole(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    done = upgraded(tmp_path, make_bundle(tmp_path, key))
    assert done.returncode == 0, done.stderr
    assert "whole: " in done.stdout


def test_a_bundle_by_another_key_is_refused_and_none_of_its_own_code_runs(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    foreign = make_bundle(tmp_path, Ed25519PrivateKey.generate())
    for name in bundles.INSTALLER:
        (foreign / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    done = upgraded(tmp_path, foreign)
    assert done.returncode == 3
    assert "this site trusts the key" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_interpreter_is_not_the_one_that_goes_away(tmp_path: Path) -> None:
    assert Path(upgrade.command(tmp_path)[0]) == Path(sys.executable).resolve()
    assert not Path(upgrade.command(tmp_path)[0]).is_relative_to(sys.prefix)
