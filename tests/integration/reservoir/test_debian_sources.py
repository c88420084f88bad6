"""What a manifest says about Debian sources and versions, held against real apt and small signed repositories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservoir.signing import openpgp
from tests.integration.reservoir.conftest import ClosedNetwork, penstock
from tests.integration.reservoir.repository import PAST, Repository


class Shop:
    """A folder with a repository of a vendor, and manifests that take from it and from nowhere else."""

    def __init__(self, folder: Path, vendor: Repository | None = None) -> None:
        self.folder = folder
        self.vendor = vendor or Repository(folder / "vendor")
        self.environment = {
            "PENSTOCK_CACHE": str(folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(folder / "signing.key"),
        }

    def manifest(self, name: str, debian: dict[str, Any], **more: object) -> Path:
        """Write a manifest; return its path."""
        path = self.folder / f"{name}.yml"
        content = {
            "schema": 1,
            "name": name,
            "version": "1.0",
            "targets": [{"name": "debian12", "release": "bookworm", "sources": ["disk"]}],
            "sources": [dict(self.vendor.source())],
            "debian": debian,
        }
        path.write_text(yaml.safe_dump(content | more))
        return path

    def lock(self, name: str, debian: dict[str, Any], code: int = 0, **more: Any) -> str:
        """Lock a manifest; return what the command said."""
        path = self.manifest(name, debian, **more)
        words = ["--lock", str(path.with_suffix(".lock"))]
        return penstock("lock", path, *words, code=code, environment=self.environment).stderr

    def locked(self, name: str, debian: dict[str, Any], **more: Any) -> dict[str, set[str]]:
        """Lock a manifest; return the versions of each package."""
        self.lock(name, debian, **more)
        found: dict[str, set[str]] = {}
        for item in self.read(name)["artifacts"]:
            found.setdefault(item["name"], set()).add(item["version"])
        return found

    def read(self, name: str) -> dict[str, Any]:
        """Return the lock of a manifest."""
        content: dict[str, Any] = json.loads((self.folder / f"{name}.lock").read_text())
        return content

    def import_into(self, site: Path, name: str, debian: dict[str, Any], **more: Any) -> None:
        """Lock, build and import a bundle."""
        self.lock(name, debian, **more)
        words = ["--lock", str(self.folder / f"{name}.lock"), "--output", str(self.folder / "out"), "--json"]
        built = penstock("build", self.folder / f"{name}.yml", *words, environment=self.environment)
        penstock("import", "--trust-first", json.loads(built.stdout)["bundle"], "--root", site)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A vendor whose driver and manager go together, in two versions each."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    for version in ("1.0", "2.0"):
        made.vendor.add("driver", f"{version}-1", Recommends="tools")
        made.vendor.add("manager", f"{version}-3")
    made.vendor.add("tools", "5")
    made.vendor.write()
    return made


def test_the_newest_version_is_taken_unless_the_list_names_another(shop: Shop) -> None:
    assert shop.locked("newest", {"gpu": ["driver"]}) == {"driver": {"2.0-1"}}
    assert shop.locked("exact", {"gpu": ["driver=1.0-1"]}) == {"driver": {"1.0-1"}}
    assert shop.locked("prefix", {"gpu": ["driver=1.*"]}) == {"driver": {"1.0-1"}}
    said = shop.lock("none", {"gpu": ["driver=3.*"]}, code=2)
    assert "debian.gpu: no such version in bookworm: driver=3.*" in said


def test_recommended_packages_go_in_where_a_list_asks_for_them(shop: Shop) -> None:
    assert "tools" not in shop.locked("plain", {"gpu": {"packages": ["driver"]}})
    assert "tools" in shop.locked("more", {"gpu": {"packages": ["driver"], "recommends": True}})


def test_a_list_goes_only_to_the_targets_that_it_names(shop: Shop) -> None:
    targets = [{"name": name, "release": "bookworm", "sources": ["disk"]} for name in ("workers", "master")]
    shop.lock("some", {"gpu": {"packages": ["driver"], "targets": ["workers"]}, "all": ["tools"]}, targets=targets)
    assert {a["name"]: a["targets"] for a in shop.read("some")["artifacts"]} == {
        "driver": ["workers"],
        "tools": ["master", "workers"],
    }


VERSION_SET = {"name": "gpu", "packages": {"driver": "1.0*", "manager": "1.0*"}, "equal": ["driver", "manager"]}


def test_a_version_set_is_resolved_as_a_whole(shop: Shop) -> None:
    assert shop.locked("version-set", {"gpu": ["driver", "manager"]}, version_sets=[VERSION_SET]) == {
        "driver": {"1.0-1"},
        "manager": {"1.0-3"},
    }
    assert shop.read("version-set")["version_sets"] == [
        {"name": "gpu", "target": "debian12", "packages": {"driver": "1.0-1", "manager": "1.0-3"}}
    ]


@pytest.mark.parametrize(
    ("packages", "names", "words"),
    [
        ({"driver": "1.0*", "manager": "1.0*"}, ["driver"], "goes in without manager"),
        ({"driver": "1.0*", "manager": "2.0*"}, ["driver", "manager"], "driver 1.0-1, manager 2.0-3"),
        ({"driver": "9.*", "manager": "*"}, ["driver", "manager"], "wants driver 9.*, and 2.0-1 would go in"),
    ],
)
def test_a_version_set_that_does_not_fit_is_refused(
    shop: Shop, packages: dict[str, str], names: list[str], words: str
) -> None:
    said = shop.lock("bad", {"gpu": names}, code=2, version_sets=[VERSION_SET | {"packages": packages}])
    assert "the version set gpu" in said
    assert words in said


def test_metadata_past_its_time_is_refused_unless_the_source_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.vendor.add("tools", "5")
    shop.vendor.write(Valid_Until=PAST)
    said = shop.lock("old", {"all": ["tools"]}, code=3)
    assert f"copy:{shop.vendor.folder}" in said
    assert "past the time" in said
    assert "allow_expired" in said
    assert not (tmp_path / "old.lock").exists()
    assert "past the time" in shop.lock("old", {"all": ["tools"]}, code=3, allow_expired=["bookworm-security"])
    assert shop.locked("old", {"all": ["tools"]}, allow_expired=["disk"]) == {"tools": {"5"}}


def test_metadata_without_the_signature_of_its_key_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.vendor.add("tools", "5")
    shop.vendor.write()
    dist = shop.vendor.folder / "dists/bookworm"
    text = (dist / "Release").read_bytes()
    shop.vendor.sign(text, openpgp.new_key())
    said = shop.lock("strange", {"all": ["tools"]}, code=3)
    assert f"copy:{shop.vendor.folder}" in said
    assert "not signed by a key that is known" in said
    shop.vendor.sign(text, shop.vendor.key)
    (dist / "InRelease").write_bytes((dist / "InRelease").read_bytes().replace(b"Label: Penstock", b"Label: Pemstock"))
    assert "not signed by a key that is known" in shop.lock("changed", {"all": ["tools"]}, code=3)
    for name in ("InRelease", "Release.gpg"):
        (dist / name).unlink()
    assert "not signed by a key that is known" in shop.lock("bare", {"all": ["tools"]}, code=3)


def test_a_node_never_mixes_the_versions_of_a_tuple(shop: Shop, closed: ClosedNetwork, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    site = tmp_path / "site"
    shop.import_into(site, "stock", {"gpu": ["driver", "manager"]}, version_sets=[VERSION_SET])
    shop.import_into(site, "extra", {"gpu": ["driver=2.0-1"]})
    penstock("publish", "--root", site)
    node = closed.machine("version-set", "--volume", f"{site}:/site:ro")
    node.run(
        "rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; echo 'deb [signed-by=/site/current/keys/apt.asc] "
        "file:/site/current/apt bookworm main' > /etc/apt/sources.list && apt-get update"
    )
    assert "Inst driver (2.0-1" in node.run("apt-get install --simulate driver manager"), "what it prevents"
    node.run("cp /site/current/apt/preferences/bookworm-amd64.pref /etc/apt/preferences.d/penstock")
    node.run("apt-get install --yes --no-install-recommends driver manager")
    assert node.run("cat /usr/share/driver/version /usr/share/manager/version") == "1.0-11.0-3"
    assert "0 upgraded" in node.run("apt-get upgrade --yes")
    assert node.run("cat /usr/share/driver/version") == "1.0-1"


def test_of_bundles_with_contradicting_version_sets_one_is_left_out(shop: Shop, tmp_path: Path) -> None:
    shop.import_into(tmp_path, "stock", {"gpu": ["driver", "manager"]}, version_sets=[VERSION_SET])
    penstock("publish", "--root", tmp_path)
    newer = VERSION_SET | {"packages": {"driver": "2.0*", "manager": "2.0*"}}
    shop.import_into(tmp_path, "other", {"gpu": ["driver", "manager"]}, version_sets=[newer])
    said = penstock("publish", "--root", tmp_path, code=11).stderr
    assert "error: other-1.0-" in said
    assert "the version set gpu of stock 1.0 holds driver at 1.0-1, and gpu of other 1.0 holds it at 2.0-1" in said
    served = json.loads((tmp_path / "current" / "publication.json").read_text())
    assert [name.partition("-")[0] for name in served["bundles"]] == ["stock"]


@pytest.mark.parametrize("release", ["jammy", "noble"])
def test_an_archive_of_ubuntu_is_resolved_built_and_published(tmp_path: Path, release: str) -> None:
    vendor = Repository(tmp_path / "vendor", release)
    vendor.add("tool", "1.0-0ubuntu1", Depends="library")
    vendor.add("library", "1.0-0ubuntu1.22.04.3")
    vendor.write()
    shop = Shop(tmp_path, vendor)
    targets = [{"name": "ubuntu", "release": release, "sources": ["disk"]}]
    shop.import_into(tmp_path / "site", "ubuntu", {"nodes": ["tool"]}, targets=targets)
    penstock("publish", "--root", tmp_path / "site")
    served = (tmp_path / f"site/current/apt/dists/{release}/main/binary-amd64/Packages").read_text()
    assert "Version: 1.0-0ubuntu1.22.04.3\n" in served
    bill = json.loads(next((tmp_path / "out").glob("*/sbom.cdx.json")).read_text())
    assert sorted(one["purl"].partition("?")[0] for one in bill["components"]) == [
        "pkg:deb/ubuntu/library@1.0-0ubuntu1.22.04.3",
        "pkg:deb/ubuntu/tool@1.0-0ubuntu1",
    ]
