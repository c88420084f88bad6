"""RPM packages from a vendor's repository to a node: locked without rpm, installed by dnf that checks signatures."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import InputError, IntegrityError, UnavailableError
from reservoir.bundle import build
from reservoir.contents.artifact import RpmArtifact
from reservoir.contents.lock import Lock
from reservoir.download.cache import Cache
from reservoir.lock.file import read_lock, write_lock
from reservoir.lock.make import make
from reservoir.settings import Settings
from tests.integration.reservoir.conftest import penstock
from tests.integration.reservoir.guarded import WRITTEN, guarded, telling
from tests.integration.reservoir.rpms import PORT, Dnf, Package, Upstream, Vendor, call
from tests.unit.reservoir.parts import flip_bit, wheel

# web-a would do for app, and plug would come with it, were there no conflict; the choices are dnf's own
AWKWARD = [
    Package(
        "app",
        [
            "Requires: (web-a or web-b)",
            "Requires: (plug if web-a)",
            "Requires: (bolt if web-b)",
            "Requires: virtual(thing) >= 2",
            "Requires: /usr/share/helper/data",
            "Requires: lib >= 1:2.0",
            "Requires: clash",
            "Recommends: extras",
        ],
    ),
    Package("web-a", ["Conflicts: clash"]),
    Package("web-b"),
    Package("plug"),
    Package("bolt"),
    Package("clash"),
    Package("thing-one", ["Provides: virtual(thing) = 1"]),
    Package("thing-two", ["Provides: virtual(thing) = 3"]),
    # so deep that the list of packages alone does not name it
    Package("helper", files=["/usr/share/helper/data"]),
    # the epoch decides, whatever the version; the others are for other machines
    Package("lib", version="2.5", epoch=1, arch="x86_64"),
    Package("lib", version="3.0", arch="x86_64"),
    Package("lib", version="2.5", epoch=1, arch="aarch64"),
    Package("lib", version="2.6", epoch=1, arch="i686"),
    Package("old-tool"),
    Package("new-tool", ["Obsoletes: old-tool < 2", "Provides: old-tool = 2"]),
    Package("extras"),
    Package("pack", ["Supplements: (app and extras)"]),
    Package("caret", version="1.0^git1~rc2"),
    Package("runtime", version="5"),
]
# stream, what it needs, what it has: a stream 1.10 is not the number 1.1
MODULAR: dict[str, tuple[dict[str, list[str]], list[Package]]] = {
    "runtime:1.10": ({}, [Package("runtime", version="1.10")]),
    "runtime:2": ({"base": []}, [Package("runtime", ["Requires: base-lib"], version="2.0")]),
    "base:rolling": ({}, [Package("base-lib")]),
}
# what people ask for on each target, and whether weak dependencies come along
ASKED: dict[str, tuple[list[str], bool]] = {
    "9": (["app", "old-tool", "caret", "plugin"], False),
    "10": (["app", "runtime"], True),
}


def modules_yaml() -> str:
    """Return what a modular repository says about its modules."""
    documents = [
        {
            "document": "modulemd",
            "version": 2,
            "data": {
                "name": spoken.partition(":")[0],
                "stream": spoken.partition(":")[2],
                "version": 1,
                "context": "c0ffee",
                "arch": "x86_64",
                "summary": "A module",
                "description": "A module for tests",
                "license": {"module": ["MIT"]},
                "dependencies": [{"requires": {"platform": ["el9"], **needs}}],
                "profiles": {"default": {"rpms": [package.name for package in packages]}},
                "artifacts": {"rpms": [package.identity for package in packages]},
            },
        }
        for spoken, (needs, packages) in MODULAR.items()
    ]
    return yaml.safe_dump_all(documents, explicit_start=True)


class Workshop:
    """A folder with a manifest of one RPM source, with a cache and a signing key of its own."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.yml"
        self.lock_path = folder / "reservoir.lock"
        self.settings = Settings(folder / "cache", folder / "signing.key", 1_700_000_000)
        (folder / "vendor.asc").write_text(upstream.vendor.public)
        self.source: dict[str, Any] = {
            "name": "vendor",
            "kind": "rpm",
            "url": upstream.folder.as_uri(),
            "keys": ["vendor.asc"],
        }
        self.content: dict[str, Any] = {
            "schema": 1,
            "name": "small",
            "version": "1.0",
            "sources": [self.source],
            "targets": [{"name": "el9", "os": "rpm", "release": "9", "sources": ["vendor"]}],
            "rpm": {"tools": ["tool"]},
        }

    def save(self) -> None:
        """Write the manifest."""
        self.manifest.write_text(yaml.safe_dump(self.content))

    def lock(self) -> Lock:
        """Lock, and write the lock."""
        self.save()
        made = make(self.manifest, Cache(self.settings.cache))
        write_lock(made, self.lock_path)
        return made

    def build(self) -> build.Built:
        """Build the bundle."""
        return build.make(self.manifest, self.lock_path, self.folder / "out", self.settings)

    @property
    def environment(self) -> dict[str, str]:
        """Return what makes `penstock` use this workshop's cache and key."""
        return {
            "PENSTOCK_CACHE": str(self.settings.cache),
            "PENSTOCK_SIGNING_KEY": str(self.settings.signing_key),
        }


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendor]:
    made = Vendor(tmp_path_factory.mktemp("keys") / "vendor", "vendor")
    yield made
    made.close()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendor]:
    made = Vendor(tmp_path_factory.mktemp("keys") / "stranger", "stranger")
    yield made
    made.close()


@pytest.fixture(scope="module")
def upstream(vendor: Vendor, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """A repository of awkward packages and modules."""
    made = Upstream(tmp_path_factory.mktemp("awkward") / "upstream", vendor)
    made.add(*AWKWARD, *(package for _, packages in MODULAR.values() for package in packages))
    made.index("--general-compress-type=zstd", modules=modules_yaml())
    (made.folder / "key.asc").write_text(vendor.public)
    return made


@pytest.fixture(scope="module")
def extra(upstream: Upstream, stranger: Vendor) -> Upstream:
    """A repository beside it, of someone else, whose package needs one from there."""
    made = Upstream(upstream.folder.with_name("extra"), stranger)
    made.add(Package("plugin", ["Requires: app"]))
    made.index()
    (made.folder / "key.asc").write_text(stranger.public)
    return made


@pytest.fixture(scope="module")
def site(upstream: Upstream, extra: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that published one bundle for Debian nodes and for three kinds of RPM nodes."""
    folder = tmp_path_factory.mktemp("site")
    shop = Workshop(folder, upstream)
    (folder / "extra.asc").write_text(extra.vendor.public)
    shop.content["sources"].append(
        {"name": "extra", "kind": "rpm", "url": extra.folder.as_uri(), "keys": ["extra.asc"]}
    )
    rpm = {"os": "rpm", "sources": ["vendor"]}
    shop.content["targets"] = [
        {"name": "debian12", "release": "bookworm"},
        {"name": "el9", "os": "rpm", "release": "9", "sources": ["vendor", "extra"]},
        {"name": "el9arm", "release": "9", "arch": "arm64", **rpm},
        {"name": "el10", "release": "10", **rpm},
    ]
    shop.content["debian"] = {"tools": ["hostname"]}
    shop.content["version_sets"] = [{"name": "libs", "packages": {"lib": "1:2.5*"}}]
    shop.content["rpm"] = {
        "nine": {"packages": ASKED["9"][0], "targets": ["el9"]},
        "arm": {"packages": ["lib"], "targets": ["el9arm"]},
        "ten": {"packages": ASKED["10"][0], "recommends": True, "modules": ["runtime:2"], "targets": ["el10"]},
    }
    shop.save()
    penstock("lock", shop.manifest, environment=shop.environment)
    penstock("build", shop.manifest, "--output", folder / "out", environment=shop.environment)
    penstock("import", "--trust-first", folder / "out/small-1.0", "--root", folder / "store")
    penstock("publish", "--root", folder / "store")
    return folder


@pytest.fixture(scope="module")
def small(vendor: Vendor, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """A repository of two packages, for others to copy."""
    made = Upstream(tmp_path_factory.mktemp("small") / "upstream", vendor)
    made.add(Package("tool", ["Requires: part"], files=["/usr/share/tool"]), Package("part"))
    made.index()
    return made


@pytest.fixture
def source(small: Upstream, tmp_path: Path) -> Upstream:
    """A copy of the small repository that a test may damage."""
    made = Upstream(tmp_path / "upstream", small.vendor)
    shutil.copytree(small.folder, made.folder, dirs_exist_ok=True)
    return made


@pytest.fixture
def workshop(source: Upstream, tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, source)


def identities(site: Path, target: str) -> set[str]:
    """Return the locked packages of a target as `name-epoch:version-release.arch`."""
    locked = read_lock(site / "reservoir.lock").of_kind(RpmArtifact)
    return {
        f"{a.name}-{'' if ':' in a.version else '0:'}{a.version}.{a.metadata.arch}"
        for a in locked
        if target in a.targets
    }


def published(site: Path, release: str, folder: Path) -> Dnf:
    """Return dnf that knows the site's repository and keys, and nothing else."""
    base = f"http://127.0.0.1:{PORT}"
    lines = [
        "[site]",
        "name=site",
        f"baseurl={base}/rpm/{release}/$basearch/",
        "gpgcheck=1",
        "repo_gpgcheck=1",
        f"gpgkey={base}/keys/rpm.asc {base}/keys/rpm-{release}-$basearch.asc",
    ]
    return Dnf(folder, site / "store/current", "\n".join(lines), weak(release))


def weak(release: str) -> list[str]:
    return [f"--setopt=install_weak_deps={int(ASKED[release][1])}"]


@pytest.mark.parametrize("release", ASKED)
def test_the_lock_has_what_dnf_takes_from_the_vendors(
    site: Path, upstream: Upstream, release: str, tmp_path: Path
) -> None:
    base = f"http://127.0.0.1:{PORT}"
    lines = "".join(
        f"[{name}]\nname={name}\nbaseurl={base}/{name}/\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey={base}/{name}/key.asc\n"
        for name in ("upstream", "extra")
    )
    # dnf learns of the stream as an administrator would say it, as nobody made it the default
    words = ["runtime:2/default"] if release == "10" else []
    dnf = Dnf(tmp_path, upstream.folder.parent, lines, weak(release))
    dnf.install(*(f"@{word}" for word in words), *ASKED[release][0])
    assert dnf.installed() == identities(site, f"el{release}")


@pytest.mark.parametrize("release", ASKED)
def test_dnf_installs_the_locked_closure_from_the_publication_alone(site: Path, release: str, tmp_path: Path) -> None:
    dnf = published(site, release, tmp_path)
    dnf.install(*ASKED[release][0])
    assert dnf.installed() == identities(site, f"el{release}")


def test_one_bundle_serves_debian_and_rpm_nodes_of_both_architectures(site: Path) -> None:
    current = site / "store/current"
    assert "Package: hostname" in (current / "apt/dists/bookworm/main/binary-amd64/Packages").read_text()
    assert identities(site, "el9arm") == {"lib-1:2.5-1.aarch64"}
    assert [path.name for path in current.glob("rpm/9/aarch64/Packages/*/*")] == ["lib-2.5-1.aarch64.rpm"]
    listed = json.loads((site / "out/small-1.0/bundle.json").read_text())
    assert {(held["target"], held["packages"]["lib"]) for held in listed["version_sets"]} == {
        (target, "1:2.5-1") for target in ("el9", "el9arm", "el10")
    }


def test_another_site_publishes_the_same_metadata(site: Path, tmp_path: Path) -> None:
    penstock("import", "--trust-first", site / "out/small-1.0", "--root", tmp_path / "store")
    penstock("publish", "--root", tmp_path / "store")
    indexes = [(root / "store/current/rpm/10/x86_64/repodata/repomd.xml").read_text() for root in (site, tmp_path)]
    assert indexes[0] == indexes[1]
    assert '<data type="modules">' in indexes[0]


def test_dnf_refuses_a_publication_that_was_changed(site: Path, tmp_path: Path, stranger: Vendor) -> None:
    copy = tmp_path / "site"
    shutil.copytree(site / "store/current", copy / "store/current")
    dnf = published(copy, "9", tmp_path / "dnf")
    index = copy / "store/current/rpm/9/x86_64/repodata/repomd.xml"
    genuine = index.read_text()
    index.write_text(genuine.replace("<revision>", "<revision>1"))
    assert "Bad GPG signature" in dnf.install("caret", code=1)
    index.write_text(genuine)
    (package,) = copy.glob("store/current/rpm/9/x86_64/Packages/c/caret-*.rpm")
    package.chmod(0o644)
    stranger.sign([package])
    assert "checksum doesn't match" in dnf.install("caret", code=1)
    assert not dnf.installed()


@pytest.mark.parametrize("options", [["--general-compress-type=xz"], ["--general-compress-type=gz"]])
def test_metadata_may_be_compressed_in_any_way(source: Upstream, workshop: Workshop, options: list[str]) -> None:
    source.index(*options)
    assert {a.name for a in workshop.lock().of_kind(RpmArtifact)} == {"tool", "part"}


def test_packages_known_by_another_hash_get_their_sha256(source: Upstream, workshop: Workshop) -> None:
    source.index("--checksum=sha512")
    packages = {path.name: call("sha256sum", path).split()[0] for path in source.folder.glob("Packages/*.rpm")}
    assert {a.filename: a.sha256 for a in workshop.lock().of_kind(RpmArtifact)} == packages
    flip_bit(next(source.folder.glob("Packages/*.rpm")))
    shutil.rmtree(workshop.settings.cache)
    with pytest.raises(IntegrityError, match="sha512"):
        workshop.lock()


@pytest.fixture
def served(source: Upstream) -> Iterator[str]:
    """The address of the small repository on a server of this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(source.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_source_may_be_on_a_server(source: Upstream, workshop: Workshop, served: str) -> None:
    workshop.source["url"] = served
    workshop.lock()
    built = workshop.build().bundle.of_kind(RpmArtifact)
    assert {rpm.origin for rpm in built} == {f"{served}/Packages/{name}-1.0-1.noarch.rpm" for name in ("tool", "part")}
    remove_signature(source)
    with pytest.raises(IntegrityError, match=r"the metadata of vendor is not signed.*404"):
        workshop.lock()


def test_a_source_may_ask_for_a_user_and_a_password_that_nobody_is_told(source: Upstream, workshop: Workshop) -> None:
    with guarded(source.folder) as port:
        workshop.source["url"] = f"http://ada:wrong%40sesame@127.0.0.1:{port}"
        with pytest.raises(UnavailableError, match="401") as caught:
            workshop.lock()
        assert "sesame" not in str(caught.value)
        workshop.source["url"] = f"http://{WRITTEN}@127.0.0.1:{port}"
        locked = workshop.lock()
        built = workshop.build()
    origins = {a.name: a.origin for a in locked.of_kind(RpmArtifact)}
    assert origins["tool"] == f"http://127.0.0.1:{port}/Packages/tool-1.0-1.noarch.rpm"
    assert telling(workshop.lock_path, built.folder, workshop.settings.cache) == []


def test_a_machine_of_any_distribution_builds_what_is_not_debians(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    environment = workshop.environment | {"PATH": str(tmp_path / "programs")}
    workshop.content["targets"][0] |= {"python": "3.11", "glibc": "2.34"}
    workshop.content["python"] = {"requirements": ["own"]}
    wheel(tmp_path / "programs", "own", "1.0")
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "programs")}
    workshop.save()
    penstock("lock", workshop.manifest, environment=environment)
    built = json.loads(
        penstock("build", workshop.manifest, "-o", tmp_path / "out", "--json", environment=environment).stdout
    )
    penstock("verify", built["bundle"], environment=environment)
    listed = json.loads((Path(built["bundle"]) / "bundle.json").read_text())
    assert {a["name"] for a in listed["artifacts"] if a["kind"] in ("rpm", "python")} == {"tool", "part", "own"}
    workshop.content["targets"].append({"name": "debian12", "release": "bookworm"})
    workshop.content["debian"] = {"tools": ["hostname"]}
    workshop.save()
    said = " ".join(penstock("lock", workshop.manifest, code=5, environment=environment).stderr.split())
    assert "the program apt-get is not installed" in said
    assert "build the Debian targets in a container of Debian" in said


def test_a_package_must_be_signed_by_a_key_of_its_own_source(
    source: Upstream, workshop: Workshop, stranger: Vendor, tmp_path: Path
) -> None:
    other = Upstream(tmp_path / "other", stranger)
    other.add(Package("gadget"))
    (moved,) = other.folder.glob("Packages/gadget-*.rpm")
    moved.rename(source.folder / "Packages" / moved.name)
    source.index()
    other.index()
    (tmp_path / "other.asc").write_text(stranger.public)
    workshop.content["sources"].append(
        {"name": "other", "kind": "rpm", "url": other.folder.as_uri(), "keys": ["other.asc"]}
    )
    workshop.content["targets"][0]["sources"] = ["vendor", "other"]
    workshop.content["rpm"] = {"tools": ["gadget"]}
    workshop.lock()
    with pytest.raises(IntegrityError, match=r"gadget-1.0-1.noarch.rpm: it is signed by none of the source's keys"):
        workshop.build()


def change_index(source: Upstream) -> None:
    source.repomd.write_text(source.repomd.read_text().replace("<revision>", "<revision>1"))


def change_packages_list(source: Upstream) -> None:
    flip_bit(next(source.folder.glob("repodata/*-primary.xml.*")))


def remove_signature(source: Upstream) -> None:
    source.repomd.with_name("repomd.xml.asc").unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change_index, "by none of the source's keys"),
        (change_packages_list, "has the sha256"),
        (remove_signature, "is not signed"),
    ],
)
def test_changed_metadata_is_refused(
    source: Upstream, workshop: Workshop, damage: Callable[[Upstream], None], said: str
) -> None:
    damage(source)
    with pytest.raises(IntegrityError, match=said):
        workshop.lock()
    assert not workshop.lock_path.exists()


def test_metadata_signed_by_another_key_is_refused(source: Upstream, workshop: Workshop, stranger: Vendor) -> None:
    stranger.sign_beside(source.repomd)
    with pytest.raises(IntegrityError, match="vendor is by none of the source's keys"):
        workshop.lock()


def test_older_metadata_than_before_is_refused_unless_the_manifest_allows_it(
    source: Upstream, workshop: Workshop
) -> None:
    source.index("--set-timestamp-to-revision", "--revision=1750000000")
    workshop.lock()
    source.index("--set-timestamp-to-revision", "--revision=1700000000")
    with pytest.raises(IntegrityError, match="older than what was there before"):
        workshop.lock()
    workshop.content["allow_expired"] = ["vendor"]
    assert workshop.lock().of_kind(RpmArtifact)


def test_unsigned_metadata_must_be_named_and_packages_are_checked_still(
    source: Upstream, workshop: Workshop, stranger: Vendor
) -> None:
    remove_signature(source)
    workshop.source["unsigned_metadata"] = True
    workshop.lock()
    assert workshop.build().bundle.of_kind(RpmArtifact)
    (source.folder / "Packages/part-1.0-1.noarch.rpm").unlink()
    stranger.sign([repacked(source, Package("part"))])
    source.index()
    workshop.lock()
    with pytest.raises(IntegrityError, match=r"part-1.0-1.noarch.rpm: it is signed by none of the source's keys"):
        workshop.build()


def test_an_unsigned_package_is_refused_by_name(source: Upstream, workshop: Workshop) -> None:
    repacked(source, Package("part"))
    source.index()
    workshop.lock()
    with pytest.raises(IntegrityError, match=r"part-1.0-1.noarch.rpm: it is not signed"):
        workshop.build()
    assert not (workshop.folder / "out/small-1.0").exists()


def test_a_changed_payload_under_a_genuine_signature_is_refused(source: Upstream, workshop: Workshop) -> None:
    path = source.folder / "Packages/tool-1.0-1.noarch.rpm"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    source.index()
    workshop.lock()
    with pytest.raises(IntegrityError, match=r"tool-1.0-1.noarch.rpm: its payload is not the one that was signed"):
        workshop.build()


def test_a_package_that_changed_or_left_after_the_lock_is_refused(source: Upstream, workshop: Workshop) -> None:
    workshop.lock()
    package = source.folder / "Packages/tool-1.0-1.noarch.rpm"
    flip_bit(package)
    with pytest.raises(IntegrityError, match="has the sha256"):
        workshop.build()
    package.unlink()
    with pytest.raises(UnavailableError, match="no such file"):
        workshop.build()


def test_a_lock_names_every_package_that_is_unknown(workshop: Workshop) -> None:
    workshop.content["rpm"] = {"tools": ["tool", "nothing-at-all", "perl(Nobody)"]}
    with pytest.raises(InputError, match=r"rpm.tools: no package is or provides: nothing-at-all, perl\(Nobody\)"):
        workshop.lock()


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"packages": ["app", "web-a"]}, "web-a-1.0-1.noarch conflicts with clash provided by clash-1.0-1.noarch"),
        ({"packages": ["base-lib"]}, "base-lib-1.0-1.noarch is in the module base:rolling, which is not enabled"),
        ({"packages": ["lib.i686"]}, "is for i686"),
        ({"packages": ["runtime = 5"], "modules": ["runtime:2"]}, "runtime-5-1.noarch is hidden by an enabled module"),
        ({"packages": ["runtime"], "modules": ["runtime:3"]}, "use one of: runtime:1.10, runtime:2"),
    ],
)
def test_what_cannot_be_installed_is_explained(
    upstream: Upstream, tmp_path: Path, group: dict[str, Any], said: str
) -> None:
    shop = Workshop(tmp_path, upstream)
    shop.content["rpm"] = {"tools": group}
    with pytest.raises(InputError) as caught:
        shop.lock()
    assert said in str(caught.value)


def test_a_version_set_decides_which_version_goes_in(upstream: Upstream, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, upstream)
    shop.content["rpm"] = {"tools": ["lib"]}
    shop.content["version_sets"] = [{"name": "libs", "packages": {"lib": "3.0*"}}]
    assert [a.version for a in shop.lock().of_kind(RpmArtifact)] == ["3.0-1"]


def repacked(source: Upstream, package: Package) -> Path:
    """Put a package that nobody signed in place of the genuine one."""
    made = package.build(source.folder.parent / "repacked")
    final = source.folder / "Packages" / made.name
    made.replace(final)
    return final
