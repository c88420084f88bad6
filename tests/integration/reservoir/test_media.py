"""The product's bundle on media: any order, a damaged one, a killed import; a disk with a file system of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.integration.reservoir.conftest import PENSTOCK, penstock
from tests.unit.reservoir.parts import flip_bit, make_bundle

SIZE = "120MB"


@pytest.fixture(scope="module")
def media(product_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("media")
    done = json.loads(penstock("split", product_bundle, "--size", SIZE, "-o", folder, "--json").stdout)
    made = [Path(path) for path in done["media"]]
    assert len(made) > 3
    return made


def blobs(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "blobs/sha256").iterdir())


def test_media_fit_their_discs_and_hold_the_whole_bundle(product_bundle: Path, media: list[Path]) -> None:
    for medium in media:
        assert sum(path.stat().st_size for path in medium.rglob("*") if path.is_file()) <= 120_000_000
    assert sum(map(blobs, media)) == blobs(product_bundle)
    said = json.loads(penstock("verify", *reversed(media), "--json").stdout)
    assert said["complete"]
    assert json.loads(penstock("verify", *media[1:], "--json").stdout)["missing"] == [1]


def test_a_damaged_medium_is_named_and_the_others_count(
    product_bundle: Path, media: list[Path], tmp_path: Path
) -> None:
    *others, last = reversed(media)
    number = others[1].name.partition("-")[0]
    damaged = tmp_path / others[1].name
    shutil.copytree(others[1], damaged)
    flip_bit(max((damaged / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size))
    others[1] = damaged
    site = tmp_path / "site"
    said = penstock("import", "--trust-first", *others, "--root", site, code=3).stderr
    assert f"medium {int(number)} of {len(media)}: " in said
    assert "Hint: get medium" in said
    done = json.loads(penstock("import", "--trust-first", last, "--root", site, "--json").stdout)
    assert (done["complete"], done["missing"], done["damaged"]) == (False, [], [int(number)])
    good = next(medium for medium in media if medium.name == damaged.name)
    assert json.loads(penstock("import", "--trust-first", good, "--root", site, "--json").stdout)["complete"]
    again = penstock("import", "--trust-first", product_bundle, "--root", site, "--json")
    assert not json.loads(again.stdout)["changed"]


def test_a_killed_import_of_a_medium_goes_on(media: list[Path], tmp_path: Path) -> None:
    site = tmp_path / "site"
    command: list[str | Path] = ["import", "--trust-first", *media, "--root", site]
    process = subprocess.Popen([PENSTOCK, "reservoir", *command], stderr=subprocess.DEVNULL)
    while len(list((site / "incoming").glob("*/media/*.json"))) < 2 and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not list((site / "bundles").iterdir())
    assert not list((site / "blobs/sha256").iterdir())
    assert json.loads(penstock(*command, "--json").stdout)["complete"]
    assert not (site / "incoming").exists()


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    """A bundle at the root of a disk with an ext4 file system, which has a folder of its own there."""
    bundle = make_bundle(tmp_path, Ed25519PrivateKey.generate())
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", bundle, image, "40M"], check=True)
    if subprocess.run(["mount", "-o", "loop,ro", image, folder], capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts no image files")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_bundle_at_the_root_of_a_disk_is_taken_as_it_is(medium: Path, tmp_path: Path) -> None:
    assert (medium / "lost+found").is_dir()
    penstock("verify", medium)
    assert json.loads(penstock("import", "--trust-first", medium, "--root", tmp_path / "site", "--json").stdout)[
        "complete"
    ]
