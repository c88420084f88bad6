"""Installations: what is made, what a failed one leaves, and what is refused before."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.version import Version

from appliance.site.alone import alone
from common.errors import ConflictError
from reservoir.bundle import bundles
from reservoir.contents.artifact import Artifact, FileArtifact, PythonArtifact
from reservoir.intake.receipt import write as write_receipt
from reservoir.intake.store import Store
from reservoir.media import delta, needed, receipt, split
from tests.unit.reservoir.installer.machines import (
    Programs,
    Run,
    product,
)
from tests.unit.reservoir.parts import artifact, flip_bit, make_bundle, take, wheel
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP


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
