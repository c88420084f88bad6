"""Lock and build with the machine's own apt, pip configuration and uv, from a small manifest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservoir.artifacts.debian import publish as apt_tree
from reservoir.contents.artifact import DebianArtifact, FileArtifact
from reservoir.signing import openpgp
from tests.integration.reservoir import loaded
from tests.integration.reservoir.conftest import PENSTOCK, lasting_cache, penstock
from tests.integration.reservoir.disks import mounted
from tests.unit.reservoir.parts import STANZA, artifact, wheel

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "demo-project"
version = "0.3"
dependencies = ["mdurl"]
[project.optional-dependencies]
color = ["pygments"]
"""

NATIVE_HOOK = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["tag"] = "py3-none-manylinux_2_17_riscv64"
"""


class Workshop:
    """A folder with a small manifest and a signing key, and with a cache of its own unless it is given one."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.yml"
        self.lock = folder / "reservoir.lock"
        self.out = folder / "out"
        self.environment = {
            "PENSTOCK_CACHE": str(cache or folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(folder / "signing.key"),
        }
        (folder / "demo_project").mkdir()
        (folder / "demo_project/__init__.py").write_text('"""A demo."""\n')
        (folder / "pyproject.toml").write_text(PROJECT)
        (folder / "licence.txt").write_text("do what you like\n")
        self.content: dict[str, Any] = {
            "schema": 1,
            "name": "small",
            "version": "1.0",
            "targets": [{"name": "debian12", "release": "bookworm", "python": "3.11"}],
            "python": {"projects": [{"path": ".", "extras": ["color"]}], "requirements": ["markdown-it-py>=3"]},
            "debian": {"tools": ["jq"]},
            "files": [
                {
                    "name": "licence.txt",
                    "url": (folder / "licence.txt").as_uri(),
                    "sha256": artifact(folder / "licence.txt", FileArtifact, "licence").sha256,
                }
            ],
        }
        self.save()

    def save(self) -> None:
        """Write the manifest."""
        self.manifest.write_text(yaml.safe_dump(self.content))

    def run(self, *words: str | Path, code: int = 0, **more: str) -> loaded.Ended:
        """Run `penstock reservoir` with this workshop's cache and key."""
        return penstock(*words, code=code, environment=self.environment | more)

    def build(self, code: int = 0, **more: str) -> loaded.Ended:
        """Build the bundle."""
        return self.run("build", self.manifest, "--output", self.out, "--json", code=code, **more)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, lasting_cache("build"))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A workshop whose lock was made once for all tests that only read it."""
    made = Workshop(tmp_path_factory.mktemp("locked"))
    made.run("lock", made.manifest)
    return made


def artifacts(path: Path) -> dict[str, dict[str, Any]]:
    return {a["name"]: a for a in json.loads(path.read_text())["artifacts"]}


def test_a_lock_holds_the_closure_with_sizes_hashes_and_origins(locked: Workshop) -> None:
    found = artifacts(locked.lock)
    assert {"jq", "libjq1", "libonig5", "libc6", "markdown-it-py", "mdurl", "pygments", "licence.txt"} <= found.keys()
    assert "demo-project" not in found
    assert all(a["size"] > 0 and len(a["sha256"]) == 64 and "://" in a["origin"] for a in found.values())
    assert "Depends: " in found["jq"]["metadata"]["stanza"]


def test_a_build_is_whole_repeatable_and_done_once(locked: Workshop, tmp_path: Path) -> None:
    first = json.loads(locked.build().stdout)
    assert first["changed"]
    bundle = Path(first["bundle"])
    verdict = json.loads(locked.run("verify", bundle, "--json").stdout)
    found = artifacts(bundle / "bundle.json")
    assert verdict["blobs"] == len(found)
    assert found["demo-project"]["version"] == "0.3"
    assert json.loads(locked.build().stdout)["changed"] is False

    other = tmp_path / "cache"
    elsewhere = locked.run("build", locked.manifest, "--output", tmp_path / "out", "--json", PENSTOCK_CACHE=str(other))
    again = artifacts(Path(json.loads(elsewhere.stdout)["bundle"]) / "bundle.json")
    assert {name: a["sha256"] for name, a in again.items()} == {name: a["sha256"] for name, a in found.items()}

    site = tmp_path / "site"
    assert json.loads(locked.run("import", "--trust-first", bundle, "--root", site, "--json").stdout)["changed"]
    assert json.loads(locked.run("publish", "--root", site, "--json").stdout)["publication"] == 1
    assert (site / "current/files/licence.txt").read_text() == "do what you like\n"


def test_a_changed_file_in_the_cache_never_reaches_a_bundle(locked: Workshop, tmp_path: Path) -> None:
    locked.build()
    blob = Path(locked.environment["PENSTOCK_CACHE"]) / "blobs" / artifacts(locked.lock)["jq"]["sha256"]
    content = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    said = locked.run("build", locked.manifest, "--output", tmp_path / "out", code=3).stderr
    assert "a file in the cache was changed; it was deleted" in said
    assert not (tmp_path / "out").exists()
    locked.run("build", locked.manifest, "--output", tmp_path / "out")


def test_a_killed_build_leaves_no_bundle_and_goes_on(locked: Workshop, tmp_path: Path) -> None:
    environment = os.environ | locked.environment | {"PENSTOCK_CACHE": str(tmp_path / "cache")}
    words: list[str | Path] = ["build", locked.manifest, "--output", tmp_path / "out"]
    process = subprocess.Popen(
        [PENSTOCK, "reservoir", *words], env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    blobs = tmp_path / "cache/blobs"
    while not list(blobs.glob("[0-9a-f]*")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not list((tmp_path / "out").glob("[!.]*"))
    kept = {path: path.stat().st_mtime_ns for path in blobs.iterdir() if path.suffix != ".partial"}
    done = locked.run(*words, "--json", PENSTOCK_CACHE=str(tmp_path / "cache"))
    locked.run("verify", json.loads(done.stdout)["bundle"])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_an_unknown_debian_package_is_named_and_nothing_is_written(workshop: Workshop) -> None:
    workshop.content["debian"]["more"] = ["jq", "no-such-package-at-all"]
    workshop.save()
    said = workshop.run("lock", workshop.manifest, code=2).stderr
    assert "debian.more: no such Debian package in bookworm: no-such-package-at-all" in said
    assert "Hint: correct the name" in said
    assert not workshop.lock.exists()


def test_a_requirement_without_a_wheel_for_the_target_is_named(workshop: Workshop, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    wheel(links, "elsewhere").rename(links / "elsewhere-1.0-cp39-cp39-win_amd64.whl")
    workshop.content["python"] = {"requirements": ["elsewhere"]}
    workshop.save()
    said = workshop.run(
        "lock", workshop.manifest, code=2, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(links), PIP_EXTRA_INDEX_URL=""
    ).stderr
    assert "python: no set of wheels for Python 3.11 on bookworm amd64 fits" in said
    assert "elsewhere" in said
    assert not workshop.lock.exists()


def test_a_project_that_compiles_for_another_machine_than_the_targets_is_refused(workshop: Workshop) -> None:
    folder = workshop.folder / "native"
    folder.mkdir()
    text = PROJECT.replace("demo-project", "native-project") + "[tool.hatch.build.targets.wheel.hooks.custom]\n"
    (folder / "pyproject.toml").write_text(text + "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n")
    (folder / "hatch_build.py").write_text(NATIVE_HOOK)
    workshop.content |= {"python": {"projects": [{"path": "native"}]}, "debian": {}}
    workshop.save()
    workshop.run("lock", workshop.manifest)
    said = workshop.build(code=2).stderr
    assert "native_project-0.3-py3-none-manylinux_2_17_riscv64.whl, does not run on debian12" in said
    assert "Hint: build on a machine of the target's architecture" in said
    assert not workshop.out.exists()


def test_a_project_that_compiles_is_built_once_for_each_architecture(workshop: Workshop) -> None:
    folder = workshop.folder / "native"
    folder.mkdir()
    text = PROJECT.replace("demo-project", "native-project") + "[tool.hatch.build.targets.wheel.hooks.custom]\n"
    (folder / "pyproject.toml").write_text(text + "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n")
    able = "f\"py3-none-manylinux_2_17_{os.environ.get('PENSTOCK_WHEEL_MACHINE') or 'x86_64'}\""
    (folder / "hatch_build.py").write_text(
        "import os\n" + NATIVE_HOOK.replace('"py3-none-manylinux_2_17_riscv64"', able)
    )
    workshop.content["targets"] = [
        {"name": name, "release": "bookworm", "arch": arch, "python": "3.11"}
        for name, arch in (("one", "amd64"), ("other", "arm64"), ("third", "arm64"))
    ]
    workshop.content |= {"python": {"projects": [{"path": "native"}]}, "debian": {}, "files": []}
    workshop.save()
    workshop.run("lock", workshop.manifest)
    workshop.build()
    [document] = workshop.out.glob("*/bundle.json")
    all_of = json.loads(document.read_text())["artifacts"]
    assert {a["filename"]: a["targets"] for a in all_of if a["name"] == "native-project"} == {
        "native_project-0.3-py3-none-manylinux_2_17_x86_64.whl": ["one"],
        "native_project-0.3-py3-none-manylinux_2_17_aarch64.whl": ["other", "third"],
    }


def test_an_unknown_key_is_named_with_its_line(workshop: Workshop) -> None:
    workshop.manifest.write_text(workshop.manifest.read_text() + "pyhton: {}\n")
    line = len(workshop.manifest.read_text().splitlines())
    assert f"manifest.yml:{line}: pyhton: unknown key" in workshop.run("lock", workshop.manifest, code=2).stderr


def test_a_lock_of_another_manifest_is_refused(locked: Workshop, workshop: Workshop) -> None:
    workshop.content["debian"]["tools"] = ["jq", "hello"]
    workshop.save()
    workshop.lock.write_text(locked.lock.read_text())
    assert "the lock does not match the manifest" in workshop.build(code=7).stderr
    assert not workshop.out.exists()


def test_a_full_disk_leaves_no_bundle(locked: Workshop, tmp_path: Path) -> None:
    with mounted(tmp_path, "1m"):
        said = locked.run("build", locked.manifest, "--output", tmp_path / "out", code=5).stderr
        assert "no space left on the disk" in said
        assert "Hint: free some space" in said
        assert not list((tmp_path / "out").iterdir())


def test_sources_of_other_origins_stay_out_and_may_be_silent(workshop: Workshop, tmp_path: Path) -> None:
    """A vendor offers a newer jq for the same release; another vendor's server is gone."""
    vendor = tmp_path / "vendor"
    key = openpgp.new_key()
    (tmp_path / "vendor.asc").write_bytes(openpgp.public_key(key))
    deb = tmp_path / "jq_99_amd64.deb"
    deb.write_bytes(b"not ours")
    newer = artifact(deb, DebianArtifact, "jq", "99", stanza=STANZA.format(name="jq", version="99"))

    def place(_: str, path: Path) -> None:
        path.parent.mkdir(parents=True)
        path.write_bytes(deb.read_bytes())

    apt_tree.write(
        vendor,
        {"amd64": [newer]},
        release="bookworm",
        secret=key,
        place=place,
    )
    parts = tmp_path / "sources.list.d"
    subprocess.run(["cp", "-r", "/etc/apt/sources.list.d", parts], check=True)
    vendors = f"deb [signed-by={tmp_path}/vendor.asc] file:{vendor} bookworm main\n"
    (parts / "vendors.list").write_text(vendors + "deb http://192.0.2.1/apt nodistro main\n")
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::sourceparts "{parts}";\n')
    workshop.content["python"] = {}
    workshop.content["files"] = []
    workshop.save()
    workshop.run("lock", workshop.manifest, APT_CONFIG=str(tmp_path / "apt.conf"))
    assert artifacts(workshop.lock)["jq"]["version"] != "99"

    # the same source counts when the manifest names its origin
    workshop.content["targets"][0]["origins"] = ["o=Debian,n=bookworm", "o=Penstock"]
    workshop.content["debian"] = {"tools": ["jq"]}
    workshop.save()
    workshop.run("lock", workshop.manifest, APT_CONFIG=str(tmp_path / "apt.conf"))
    assert artifacts(workshop.lock)["jq"]["version"] == "99"
