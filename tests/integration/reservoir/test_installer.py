"""The installer of the product's bundle with nothing but Python: upgrades that are killed, deltas, media."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reservoir.media import delta, receipt
from reservoir.settings import load
from reservoir.signing import ed25519
from tests.integration.reservoir.conftest import penstock

# what a bare machine has
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
Install = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def install(place: Path) -> Install:
    """Start install.sh of a folder, with places below a scratch folder, from where others left modules of theirs."""
    foreign = place / "foreign"
    foreign.mkdir()
    for name in ("venv", "pip", "zipfile", "json"):
        (foreign / f"{name}.py").write_text("raise SystemExit('not of the bundle')\n")

    def start(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
        places: list[str | Path] = [
            "--prefix",
            place / "opt/site",
            "--command",
            place / "bin/penstock",
            "--root",
            place / "site",
            "--state",
            place / "state",
        ]
        command: list[str | Path] = ["sh", folder / "install.sh", *places, *words]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENVIRONMENT,
            cwd=foreign,
            start_new_session=True,
        )

    return start


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    said = process.communicate()[0]
    assert process.returncode == code, said
    return said


def works(place: Path) -> bool:
    """Whether the installed command runs and finds what it needs."""
    script = "from reservoir.media import known_sites; from reservoir.publication import publish; import ansible_runner"
    subprocess.run([place / "bin/penstock", "--help"], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    python = (place / "bin/penstock").resolve().with_name("python")
    return subprocess.run([python, "-I", "-c", script], check=True, env=ENVIRONMENT).returncode == 0


@pytest.fixture(scope="module")
def installed(product_bundle: Path, install: Install, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the installer on the first medium of the bundle says; what it installed lies at the place."""
    folder = tmp_path_factory.mktemp("media")
    done = json.loads(penstock("split", product_bundle, "--size", "120MB", "-o", folder, "--json").stdout)
    assert len(done["media"]) > 3
    return finished(install(Path(done["media"][0]), "--key", product_bundle / "penstock.pub"))


def test_the_first_medium_installs_and_knows_its_maker(product_bundle: Path, place: Path, installed: str) -> None:
    assert installed.splitlines()[1].startswith("is the key that signed medium 1 of ")
    assert works(place)
    assert (place / "opt/site/bundle.pub").read_bytes() == (product_bundle / "penstock.pub").read_bytes()


@pytest.mark.usefixtures("installed")
def test_what_is_installed_and_whole_stays(product_bundle: Path, place: Path, install: Install) -> None:
    old = (place / "opt/site").resolve()
    (place / "bin/penstock").unlink()
    # as after an installation without a key, whose maker is known by the site's import since
    (place / "site/keys").mkdir(parents=True)
    (old / "bundle.pub").rename(place / "site/keys/bundle.pub")
    assert "installed already" in finished(install(product_bundle))
    assert (place / "opt/site").resolve() == old
    assert (old / "bundle.pub").read_bytes() == (product_bundle / "penstock.pub").read_bytes()
    assert works(place)
    shutil.rmtree(place / "site")
    damage(place)
    assert "installed already" not in finished(install(product_bundle))
    assert not old.exists()
    old = (place / "opt/site").resolve()
    # a package that is gone, with the list of its files
    (record,) = old.glob("lib/python3*/site-packages/ansible_runner-*.dist-info/RECORD")
    shutil.rmtree(record.parent)
    assert "installed already" not in finished(install(product_bundle))
    assert works(place)


def damage(place: Path) -> None:
    """Change a file of what is installed, which works all the same."""
    (listed,) = place.glob("opt/site/lib/python3*/site-packages/ansible_runner-*.dist-info/METADATA")
    listed.write_text(listed.read_text() + "\n")


@pytest.mark.usefixtures("installed")
def test_a_killed_upgrade_leaves_the_old_one_working(product_bundle: Path, place: Path, install: Install) -> None:
    old = (place / "opt/site").resolve()
    damage(place)
    process = install(product_bundle)
    while (
        len(list(place.glob("opt/.site-*/lib/python3*/site-packages/*")))
        <= len(list(old.glob("lib/python3*/site-packages/*")))
        and process.poll() is None
    ):
        time.sleep(0.005)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (place / "opt/site").resolve() == old
    assert works(place)


@pytest.mark.usefixtures("installed")
def test_a_delta_installs_from_what_the_site_holds_and_keeps_the_pin(
    product_bundle: Path, place: Path, install: Install
) -> None:
    old = (place / "opt/site").resolve()
    penstock("import", "--trust-first", product_bundle, "--root", place / "site")
    penstock("receipt", "--root", place / "site", "-o", place / "receipt.json")
    nothing_new = delta.make(
        product_bundle, *receipt.read(place / "receipt.json"), ed25519.read_key(load().signing_key)
    )
    assert not list((nothing_new / "blobs/sha256").iterdir())
    assert "trusted at first sight" in finished(install(nothing_new))
    assert works(place)
    assert not old.exists()
    assert len(list(place.glob("opt/.site-*"))) == 1, "what the killed one left is gone"
    assert (place / "opt/site/bundle.pub").read_bytes() == (product_bundle / "penstock.pub").read_bytes()


def test_the_check_with_python_alone_sees_what_the_command_sees(
    product_bundle: Path, install: Install, tmp_path: Path
) -> None:
    assert "whole: " in finished(install(product_bundle, "--verify-only"))
    copy = tmp_path / "copy"
    shutil.copytree(product_bundle, copy, copy_function=os.link)
    (copy / "autorun.inf").touch()
    assert "autorun.inf: is not in the bundle's list" in finished(install(copy, "--verify-only"), code=3)
