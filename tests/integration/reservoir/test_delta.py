"""From a site's receipt to a delta and back, and a key that is replaced, with the commands as people type them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservoir.signing import ed25519, keychain
from tests.integration.reservoir.conftest import penstock
from tests.integration.reservoir.faults import PowerCut
from tests.integration.reservoir.loaded import Ended

FIRST = {"one.txt": "one", "two.txt": "two", "three.txt": "three"}
NEXT = {"one.txt": "one", "two.txt": "two, changed", "three.txt": "three", "four.txt": "four"}


class Integrator:
    """Someone who builds bundles of a few files, with a key and a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PENSTOCK_CACHE": str(folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(folder / "signing.key"),
        }

    def penstock(self, *words: str | Path, code: int = 0) -> Any:
        """Run a command; return its answer, or what it said where it was refused."""
        done = penstock(*words, code=code, environment=self.environment)
        return json.loads(done.stdout) if code == 0 and "--json" in words else done.stdout + done.stderr

    def build(self, version: str, contents: Mapping[str, str], *options: str | Path, code: int = 0) -> Any:
        """Build a bundle of files; return the answer of `build`."""
        folder = self.folder / "project"
        folder.mkdir(exist_ok=True)
        files = []
        for name, content in contents.items():
            (folder / name).write_text(content)
            sha256 = hashlib.sha256(content.encode()).hexdigest()
            files.append({"name": name, "url": (folder / name).as_uri(), "sha256": sha256})
        targets = [{"name": "debian12", "release": "bookworm"}]
        manifest = {"schema": 1, "name": "small", "version": version, "targets": targets, "files": files}
        (folder / "manifest.yml").write_text(yaml.safe_dump(manifest))
        self.penstock("lock", folder / "manifest.yml")
        words = ["build", folder / "manifest.yml", "-o", self.folder / "out", "--json", *options]
        return self.penstock(*words, code=code)

    def receipt(self, site: Path) -> tuple[Path, str]:
        """Write a receipt of a site; return its file and the fingerprint that the site shows."""
        path = self.folder / f"receipt-{len(list(self.folder.glob('receipt-*')))}.json"
        said = self.penstock("receipt", "--root", site, "-o", path)
        return path, str(said.split()[-1])


@pytest.fixture
def integrator(tmp_path: Path) -> Integrator:
    return Integrator(tmp_path)


@pytest.fixture
def site(integrator: Integrator, tmp_path: Path) -> Path:
    root = tmp_path / "site"
    built = integrator.build("1.0", FIRST)
    integrator.penstock("import", "--trust-first", built["bundle"], "--root", root)
    return root


def test_a_delta_ships_what_changed_and_nothing_else(integrator: Integrator, site: Path) -> None:
    receipt, fingerprint = integrator.receipt(site)
    said = integrator.build("2.0", NEXT, "--since", receipt, code=8)
    assert f"the site {fingerprint} is not known" in said
    made = integrator.build("2.0", NEXT, "--since", receipt, "--trust-site", fingerprint)
    assert (made["blobs"], made["bytes"], made["serial"]) == (2, len("two, changed") + len("four"), 1)
    full = integrator.penstock("verify", made["full"], "--json")
    delta = integrator.penstock("verify", made["bundle"], "--json")
    assert delta["bundle"] == full["bundle"]
    assert delta["since"]["site"] == fingerprint
    done = integrator.penstock("import", "--trust-first", made["bundle"], "--root", site, "--json")
    assert (done["bundle"], done["complete"]) == (full["bundle"], True)
    assert not integrator.penstock("import", "--trust-first", made["full"], "--root", site, "--json")["changed"]
    assert integrator.penstock("publish", "--root", site, "--json")["bundles"] == [full["bundle"]]
    assert (site / "current/files/two.txt").read_text() == "two, changed"


def test_an_older_and_a_forged_receipt_are_refused(integrator: Integrator, site: Path) -> None:
    first, fingerprint = integrator.receipt(site)
    second, _ = integrator.receipt(site)
    integrator.build("2.0", NEXT, "--since", second, "--trust-site", fingerprint)
    assert "is older than receipt 2" in integrator.build("2.0", NEXT, "--since", first, code=7)
    content = json.loads(second.read_text())
    content["receipt"]["blobs"] = []
    second.write_text(json.dumps(content))
    assert "forged or damaged" in integrator.build("2.0", NEXT, "--since", second, code=3)


def test_another_site_takes_nothing_of_a_delta(integrator: Integrator, site: Path, tmp_path: Path) -> None:
    receipt, fingerprint = integrator.receipt(site)
    made = integrator.build("2.0", NEXT, "--since", receipt, "--trust-site", fingerprint)
    said = integrator.penstock("import", "--trust-first", made["bundle"], "--root", tmp_path / "other", code=7)
    assert "this site does not hold one.txt, three.txt" in said
    assert not (tmp_path / "other").exists(), "nor does it leave an empty store"


def test_a_site_follows_a_rotated_key_and_refuses_the_old_one(integrator: Integrator, site: Path) -> None:
    old = integrator.folder / "old.key"
    old.write_bytes((integrator.folder / "signing.key").read_bytes())
    integrator.penstock("key", "rotate")
    receipt, fingerprint = integrator.receipt(site)
    made = integrator.build("2.0", NEXT, "--since", receipt, "--trust-site", fingerprint)
    assert integrator.penstock("import", "--trust-first", made["bundle"], "--root", site, "--json")["changed"]
    integrator.environment["PENSTOCK_SIGNING_KEY"] = str(old)
    late = integrator.build("3.0", NEXT)
    for option in ("--allow-rollback", "--json"):
        said = integrator.penstock("import", "--trust-first", late["bundle"], "--root", site, option, code=3)
        assert "signed with a key that was replaced" in said


def test_an_older_bundle_needs_a_word(integrator: Integrator, site: Path) -> None:
    first = integrator.folder / "out/small-1.0"
    integrator.penstock("import", "--trust-first", integrator.build("2.0", NEXT)["bundle"], "--root", site)
    for path in (site / "bundles").glob("small-1.0-*"):
        path.rename(site / "forgotten")
    assert "--allow-rollback" in integrator.penstock("import", "--trust-first", first, "--root", site, code=7)
    assert integrator.penstock("import", "--trust-first", first, "--root", site, "--allow-rollback", "--json")[
        "changed"
    ]


def test_a_rotation_that_is_cut_anywhere_is_finished_by_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    key = folder / "signing.key"
    environment = {"PENSTOCK_SIGNING_KEY": str(key)}
    power = PowerCut(tmp_path)

    def rotate(before: int | None = None) -> Ended:
        shutil.rmtree(folder, ignore_errors=True)
        ed25519.new_key(key)
        return power.run("key", "rotate", before=before, environment=environment)

    changes = rotate().changes
    assert len(changes) > 5
    for moment in range(len(changes)):
        assert rotate(moment).code == -9
        assert ed25519.read_key(key)
        assert power.run("key", "rotate", environment=environment).code == 0
        chain = keychain.of_key(key, ed25519.read_key(key))
        assert len(chain.rotations) == 1, f"cut before change {moment}, {changes[moment]}"


def test_a_first_receipt_that_is_cut_anywhere_wastes_at_most_its_number(site: Path) -> None:
    power = PowerCut(site)
    changes = power.run("receipt", "--root", site).changes
    for moment in range(len(changes)):
        shutil.rmtree(site / "keys")
        assert power.run("receipt", "--root", site, before=moment).code == -9
        whole = power.run("receipt", "--root", site)
        assert whole.code == 0, f"cut before change {moment}, {changes[moment]}: {whole.said}"
        assert json.loads(whole.stdout)["receipt"]["serial"] in (1, 2)
        assert {path.name for path in (site / "keys").iterdir()} == {"site.key", "receipt.serial"}
