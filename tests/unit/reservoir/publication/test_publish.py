from __future__ import annotations

import gzip
import hashlib
import json
import lzma
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pysequoia import Cert, verify

from common.errors import IntegrityError, NotFoundError
from reservoir.artifacts.debian.pool import pool_path
from reservoir.artifacts.image import oci
from reservoir.artifacts.python import publish as pypi_tree
from reservoir.bundle.bundles import decode
from reservoir.contents.artifact import DebianArtifact, FileArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import publish
from tests.unit.reservoir.parts import STANZA, artifact, image_blobs, image_parts, make_bundle, take


@pytest.fixture
def site(tmp_path: Path, bundle: Path) -> Path:
    root = tmp_path / "site"
    take(bundle, root)
    return root


def test_a_repository_is_signed_and_its_index_says_what_lies_there(site: Path) -> None:
    current = publish(site).folder
    dist = current / "apt/dists/bookworm"
    cert = Cert.from_bytes((current / "keys/apt.asc").read_bytes())
    release = verify((dist / "InRelease").read_bytes(), lambda _: [cert]).bytes
    assert release is not None
    assert release.strip() == (dist / "Release").read_bytes().strip()
    assert "Valid-Until" not in release.decode()
    assert "Date: Sat, 01 Jan 2000 00:00:00 GMT" in release.decode(), "no clock of a node is behind it"
    listed = {line.split()[2]: line.split()[0] for line in release.decode().split("SHA256:\n")[1].splitlines()}
    for name in ("Packages", "Packages.gz", "Packages.xz"):
        content = (dist / "main/binary-amd64" / name).read_bytes()
        assert listed[f"main/binary-amd64/{name}"] == hashlib.sha256(content).hexdigest()
    packages = (dist / "main/binary-amd64/Packages").read_bytes()
    assert gzip.decompress((dist / "main/binary-amd64/Packages.gz").read_bytes()) == packages
    assert lzma.decompress((dist / "main/binary-amd64/Packages.xz").read_bytes()) == packages
    entry = dict(line.split(": ", 1) for line in packages.decode().strip().splitlines())
    deb = (current / "apt" / entry["Filename"]).read_bytes()
    assert (int(entry["Size"]), entry["SHA256"]) == (len(deb), hashlib.sha256(deb).hexdigest())


def test_a_python_index_has_both_forms_and_the_metadata(site: Path) -> None:
    pypi = publish(site).folder / "pypi"
    page = json.loads((pypi / "simple/demo/index.json").read_text())
    (file,) = page["files"]
    path = pypi / "simple/demo" / file["url"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file["hashes"]["sha256"]
    metadata = path.with_name(path.name + ".metadata").read_bytes()
    assert b"Name: demo" in metadata
    assert hashlib.sha256(metadata).hexdigest() == file["core-metadata"]["sha256"]
    assert file["requires-python"] == ">=3.9"
    assert page["versions"] == ["1.0"]
    html = (pypi / "simple/demo/index.html").read_text()
    assert f'href="{file["url"]}#sha256={file["hashes"]["sha256"]}"' in html
    assert 'data-requires-python="&gt;=3.9"' in html
    assert 'href="demo/"' in (pypi / "simple/index.html").read_text()
    assert json.loads((pypi / "simple/index.json").read_text())["projects"] == [{"name": "demo"}]


def test_images_and_files_are_listed_by_name(site: Path) -> None:
    current = publish(site).folder
    assert (current / "files/notes.txt").read_text().startswith("notes")
    (image,) = json.loads((current / "images/index.json").read_text())["images"]
    assert (image["name"], image["tag"], image["session"]) == ("demo/python", "1", True)
    assert image["architectures"] == ["amd64"]
    (entry,) = json.loads((current / "images/oci/index.json").read_text())["manifests"]
    assert entry["digest"] == image["digest"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "demo/python:1"}
    blobs = current / "images/oci/blobs/sha256"
    manifest = oci.read((blobs / image["digest"].removeprefix("sha256:")).read_bytes(), "demo")
    assert all((blobs / part.sha256).stat().st_size == part.size for part in manifest.parts)


def test_files_are_the_stores_own(site: Path) -> None:
    wheel = publish(site).folder / "pypi/packages/demo-1.0-py3-none-any.whl"
    assert wheel.stat().st_nlink == 2


def test_the_same_bundle_is_published_once(site: Path) -> None:
    first = publish(site)
    assert (first.number, first.changed) == (1, True)
    assert Store(site).current.readlink() == Path("publications/1")
    again = publish(site)
    assert (again.number, again.changed) == (1, False)
    assert [path.name for path in Store(site).publications.iterdir()] == ["1"]


def test_a_newer_bundle_makes_the_next_publication_and_the_old_one_stays(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    publish(site)
    take(make_bundle(tmp_path / "made", key, version="2.0", body="new"), site)
    second = publish(site)
    assert (second.number, second.changed) == (2, True)
    assert second.bundles[0].startswith("small-2.0-")
    assert Store(site).current.resolve().name == "2"
    assert (Store(site).publications / "1/files/notes.txt").read_text() == "notes "
    assert (second.folder / "files/notes.txt").read_text() == "notes new"
    keys = {(Store(site).publications / n / "keys/apt.asc").read_bytes() for n in ("1", "2")}
    assert len({bytes(Cert.from_bytes(key)) for key in keys}) == 1


def test_what_is_half_written_is_never_served(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pypi_tree, "write", fail)
    with pytest.raises(KeyboardInterrupt):
        publish(site)
    assert not Store(site).current.exists()
    monkeypatch.undo()
    assert publish(site).number == 1


def test_a_bundle_that_contradicts_what_is_served_is_left_out_and_named(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    served = publish(site).bundles
    path = tmp_path / "plan.txt"
    path.write_text("a plan")
    good = make_bundle(tmp_path, key, name="plan", made=[(artifact(path, FileArtifact, "plan.txt"), path)])
    # older than what is served, and new here
    made = make_bundle(tmp_path / "made", key, name="other", body="other contents", created="2026-01-01T00:00:00Z")
    at_fault = take(made, site).identity
    fine = take(good, site).identity
    done = publish(site)
    assert (done.changed, done.bundles) == (True, sorted([*served, fine]))
    assert (done.folder / "files/plan.txt").is_file()
    names = ("demo-1.0-py3-none-any.whl", "hello_1.0_amd64.deb", "demo/python:1", "notes.txt")
    assert {problem.where for problem in done.left_out} == {f"{at_fault}: {name}" for name in names}
    assert not publish(site).changed


def test_two_packages_of_one_version_are_not_served_together_whatever_their_files_are_called(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    publish(site)
    path = tmp_path / "hello_1.0_amd64-vendor.deb"
    path.write_text("other contents")
    made = [(artifact(path, DebianArtifact, "hello", stanza=STANZA.format(name="hello", version="1.0")), path)]
    at_fault = take(make_bundle(tmp_path, key, name="vendor", made=made), site).identity
    done = publish(site)
    assert [problem.where for problem in done.left_out] == [f"{at_fault}: {path.name}"]
    assert not done.changed


def test_a_damaged_bundle_gives_way_to_an_older_one_of_its_name(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    (older,) = publish(site).bundles
    newer = make_bundle(tmp_path / "newer", key, version="2.0", body="newer")
    identity = take(newer, site).identity
    lost = next(a for a in Store(site).imported()[identity].artifacts if a.filename == "notes.txt")
    (Store(site).blobs / lost.sha256).unlink()
    done = publish(site)
    assert (done.bundles, done.changed) == ([older], False)
    assert [problem.where for problem in done.left_out] == [f"{identity}: notes.txt"]
    assert "missing at the site" in done.left_out[0].reason


def test_what_cannot_be_published_at_all_changes_nothing(site: Path) -> None:
    (identity,) = Store(site).imported()
    lost = next(a for a in Store(site).imported()[identity].artifacts if a.filename == "notes.txt")
    (Store(site).blobs / lost.sha256).unlink()
    with pytest.raises(IntegrityError, match=r"notes.txt: .*is missing"):
        publish(site)
    assert Store(site).serving() is None


def test_nothing_to_publish(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="penstock reservoir import"):
        publish(tmp_path / "empty")


def test_the_repository_key_stays_secret(site: Path) -> None:
    current = publish(site).folder
    assert (Store(site).keys / "apt.key").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in (current / "keys/apt.asc").read_bytes()


@pytest.mark.parametrize(
    ("source", "path"), [("bash (5.2)", "pool/trixie/b/bash/x.deb"), ("libzstd", "pool/trixie/libz/libzstd/x.deb")]
)
def test_packages_lie_where_debian_puts_them(source: str, path: str) -> None:
    assert str(pool_path("trixie", source, "x.deb")) == path


@pytest.mark.parametrize("source", ["../../../../keys", "/etc", "a/b", ".."])
def test_a_package_cannot_be_published_outside_of_the_pool(source: str) -> None:
    with pytest.raises(IntegrityError, match="not the name of a source package"):
        pool_path("trixie", source, "hello_1.0_amd64.deb")


@pytest.mark.parametrize("name", ["/etc/cron.d", "../keys", "demo/../../keys", "demo//python", ""])
def test_a_list_with_a_name_that_leads_elsewhere_is_refused(bundle: Path, name: str) -> None:
    listed = json.loads((bundle / "bundle.json").read_text())
    listed["artifacts"][0]["name"] = name
    with pytest.raises(IntegrityError, match=r"artifacts\.0\.name"):
        decode(json.dumps(listed).encode(), "bundle.json")


def test_an_image_that_is_carried_goes_before_one_that_the_site_made(
    site: Path, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    """The name was free when the site built it; the maker took it later: the site must still be able to publish."""
    (tmp_path / "own").mkdir()
    own = image_parts(tmp_path / "own", image_blobs(tmp_path / "own", "own"))
    carried = json.loads((publish(site).folder / "images/index.json").read_text())["images"]
    take(make_bundle(tmp_path, key, name="local-demo", made=own), site)
    told: list[str] = []
    done = publish(site, lambda step, *_: told.append(step))
    assert json.loads((done.folder / "images/index.json").read_text())["images"] == carried
    assert "image demo/python:1 comes with a bundle now; the one made here is not served" in told
