"""Signing keys in a PKCS#11 token: SoftHSM's, by its own driver."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.reservoir.conftest import penstock

MODULE = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "7531"


def uri(label: str, *, token: str = "vault", module: str = MODULE) -> str:
    return f"pkcs11:token={token};object={label}?module-path={module}"


class Maker:
    """A machine that builds bundles, with an empty token."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key, self.pin = folder, folder / "maker/signing.key", folder / "pin"
        (folder / "tokens").mkdir()
        (folder / "softhsm.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\nlog.level = ERROR\n")
        self.pin.write_text(f"{PIN}\n")
        (folder / "note").write_text("a file")
        self.environment = {
            "SOFTHSM2_CONF": str(folder / "softhsm.conf"),
            "PENSTOCK_CACHE": str(folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(self.key),
            "PENSTOCK_SIGNING_PASSWORD_FILE": str(self.pin),
        }
        self.token("softhsm2-util", "--init-token", "--free", "--label", "vault", "--pin", PIN, "--so-pin", "8642")

    def token(self, *words: str) -> str:
        """Run a program with the token."""
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout

    def run(self, *words: str | Path, code: int = 0) -> str:
        """Run `penstock reservoir` and return what it said."""
        done = penstock(*words, code=code, environment=self.environment)
        return done.stdout + done.stderr

    def build(self, version: str = "1.0") -> Path:
        """Lock and build a bundle; return its folder."""
        file = {"name": "note", "url": (self.folder / "note").as_uri()}
        file["sha256"] = hashlib.sha256((self.folder / "note").read_bytes()).hexdigest()
        targets = [{"name": "debian12", "release": "bookworm"}]
        manifest = self.folder / "small.yml"
        manifest.write_text(
            yaml.safe_dump({"schema": 1, "name": "small", "version": version, "targets": targets, "files": [file]})
        )
        self.run("lock", manifest)
        built = penstock("build", manifest, "-o", self.folder, "--json", environment=self.environment)
        return Path(json.loads(built.stdout)["bundle"])

    def show(self) -> Path:
        """Return a file with the public key as a site gets it."""
        path = self.folder / "signing.pub"
        path.write_text(penstock("key", "show", environment=self.environment).stdout)
        return path


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def test_a_bundle_is_signed_by_a_key_that_never_leaves_its_token(maker: Maker, tmp_path: Path) -> None:
    name = maker.run("key", "new", "--pkcs11", uri("bundles")).split()[-1]
    assert maker.key.read_text() == uri("bundles") + "\n", "the machine has the name of the key alone"
    bundle, key = maker.build(), maker.show()
    assert f"signed by {name} (the given key)" in maker.run("verify", bundle, "--key", key)
    installer = ["/usr/bin/python3", str(bundle / "bootstrap.py"), "--verify-only", "--key", str(key)]
    subprocess.run(installer, check=True, capture_output=True)
    site = tmp_path / "site"
    maker.run("import", bundle, "--root", site, "--key", key)
    receipt = tmp_path / "receipt.json"
    told = maker.run("receipt", "--root", site, "-o", receipt)
    trusted = next(word for word in told.split() if len(word.strip(".,:")) == 64).strip(".,:")
    since: list[str | Path] = ["--since", receipt, "--trust-site", trusted]
    built = penstock("build", tmp_path / "small.yml", "-o", tmp_path, *since, "--json", environment=maker.environment)
    delta = json.loads(built.stdout)
    assert delta["blobs"] == 0
    maker.run("verify", delta["bundle"], "--key", key)


def test_keys_in_tokens_replace_keys_in_files_and_each_other(maker: Maker, tmp_path: Path) -> None:
    maker.run("key", "new")
    site = tmp_path / "site"
    maker.run("import", maker.build(), "--root", site, "--key", maker.show())
    maker.run("key", "rotate", "--pkcs11", uri("first"))
    refused = maker.run("key", "rotate", code=7)
    assert "--pkcs11" in refused
    same = maker.run("key", "rotate", "--pkcs11", uri("first"), code=7)
    assert "the key that is to be replaced" in same
    maker.run("key", "rotate", "--pkcs11", uri("second"))
    maker.run("import", maker.build("2.0"), "--root", site)
    kept = [path.read_text() for path in sorted(maker.key.parent.glob("signing.*.key"))]
    assert kept[0].startswith("-----BEGIN")
    assert kept[1] == uri("first") + "\n"


def test_a_key_of_the_token_itself_is_taken(maker: Maker) -> None:
    maker.run("key", "new", "--pkcs11", uri("bundles"))
    maker.key.rename(maker.key.with_name("other"))
    assert maker.run("key", "new", "--pkcs11", uri("bundles")).split()[-1] in maker.run("key", "show")


@pytest.mark.parametrize(
    ("name", "pin", "said"),
    [
        (uri("bundles", token="other"), PIN, "NoSuchToken"),
        (uri("bundles"), "0000", "PinIncorrect"),
        (uri("bundles", module="/nowhere.so"), PIN, "/nowhere.so"),
        (uri("bundles"), "", "no password or PIN"),
        ("pkcs11:token=vault;object=bundles", PIN, "has no module-path"),
        (uri("bundles") + "&pin-value=7531", PIN, "'pin-value' is not taken here"),
        ("vault/bundles", PIN, "write pkcs11:"),
    ],
)
def test_what_no_token_answers_is_told_and_leaves_nothing(maker: Maker, name: str, pin: str, said: str) -> None:
    maker.pin.write_text(pin)
    assert said in maker.run("key", "new", "--pkcs11", name, code=2)
    assert not maker.key.exists()


def test_a_key_that_is_gone_is_told(maker: Maker) -> None:
    maker.run("key", "new", "--pkcs11", uri("bundles"))
    maker.key.write_text(uri("lost"))
    assert "has no Ed25519 key lost" in maker.run("key", "show", code=2)
