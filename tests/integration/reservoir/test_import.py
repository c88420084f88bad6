"""Import of the product's bundle when things go wrong for real: a killed process, a disk without space."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.integration.reservoir.conftest import PENSTOCK, penstock
from tests.integration.reservoir.disks import mounted
from tests.unit.reservoir.parts import make_bundle


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site that serves a small bundle already, signed by a key that it trusts."""
    key = Ed25519PrivateKey.generate()
    root = tmp_path / "site"
    penstock("import", "--trust-first", make_bundle(tmp_path / "made", key, name="held"), "--root", root)
    penstock("publish", "--root", root)
    return root


def served(root: Path) -> dict[str, str]:
    """What the site holds and serves, by name and time of change."""
    names = [path for folder in ("blobs", "bundles", "publications", "keys") for path in (root / folder).rglob("*")]
    return {str(path): str(path.stat().st_mtime_ns) for path in names} | {"current": str((root / "current").readlink())}


def test_a_killed_import_keeps_what_the_site_had_and_goes_on(site: Path, product_bundle: Path) -> None:
    before = served(site)
    words: list[str | Path] = [
        "import",
        product_bundle,
        "--root",
        site,
        "--key",
        product_bundle / "penstock.pub",
        "--replace-key",
    ]
    process = subprocess.Popen([PENSTOCK, "reservoir", *words], stderr=subprocess.DEVNULL)
    while len(list((site / "incoming").glob("*/[0-9a-f]*"))) < 3 and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert served(site) == before
    penstock("publish", "--root", site)
    assert served(site) == before
    done = json.loads(penstock(*words, "--json").stdout)
    assert done["changed"]
    assert done["bundle"].startswith("penstock-")
    assert not (site / "incoming").exists()
    assert json.loads(penstock("publish", "--root", site, "--json").stdout)["publication"] == 2


def test_a_disk_that_fills_up_is_told_and_nothing_stays(site: Path, product_bundle: Path) -> None:
    before = served(site)
    limit = 4_000_000
    other_key: list[str | Path] = ["--key", product_bundle / "penstock.pub", "--replace-key"]
    done = subprocess.run(
        [PENSTOCK, "reservoir", "import", product_bundle, "--root", site, *other_key],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 5, done.stderr
    assert "no space left on the disk" in done.stderr
    assert served(site) == before
    assert not (site / "incoming").exists()


def test_a_disk_that_is_too_small_is_told_before_anything_is_copied(tmp_path: Path, product_bundle: Path) -> None:
    with mounted(tmp_path, "20m"):
        said = penstock("import", "--trust-first", product_bundle, "--root", tmp_path / "site", code=5).stderr
        assert "MB are free" in said
        assert not (tmp_path / "site").exists()
