"""A power cut right before any change that a command makes to a disk: nothing lost, nothing half done."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.signing import ed25519
from tests.integration.reservoir.disks import Disk
from tests.integration.reservoir.faults import PowerCut, moments
from tests.unit.reservoir.parts import make_bundle, wheel

# its number counts attempts, too
RECORD = "publication.json"


@pytest.fixture
def tmp_path(disk: Disk) -> Path:
    """A folder in memory: what dies here is a process, and a real disk would only be waited for."""
    return disk.folder


@pytest.fixture
def power(tmp_path: Path) -> PowerCut:
    return PowerCut(tmp_path)


def files(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """What lies below a folder, by path, as hashes of contents."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name not in leave_out
    }


def served(site: Path) -> dict[str, str]:
    """What the nodes of a site read."""
    return files((site / "current").resolve(), [RECORD])


def held(site: Path) -> dict[str, str]:
    """What a site keeps for good: blobs, lists of bundles, keys."""
    return {
        f"{name}/{path}": digest
        for name in ("blobs", "bundles", "keys")
        for path, digest in files(site / name).items()
        if not any(part.startswith(".") for part in Path(path).parts)
    }


def leftovers(site: Path) -> list[str]:
    """What an interrupted command may leave, and a finished one may not."""
    return [
        str(path.relative_to(site))
        for path in site.rglob("*")
        if path.name != ".lock" and (path.name.startswith(".") or path.suffix in (".partial", ".new", ".old"))
    ]


@pytest.fixture
def site(tmp_path: Path, power: PowerCut) -> Path:
    """A site that serves one bundle."""
    key = ed25519.new_key(tmp_path / "maker.key")
    root = tmp_path / "site"
    first = make_bundle(tmp_path / "first", key)
    assert power.run("import", "--trust-first", first, "--root", root).code == 0
    assert power.run("publish", "--root", root).code == 0
    return root


@pytest.fixture
def second(tmp_path: Path, site: Path) -> Path:
    """A newer bundle of the same maker, with other contents."""
    return make_bundle(tmp_path / "second", ed25519.read_key(tmp_path / "maker.key"), version="1.1", body="# more\n")


def cut_everywhere(power: PowerCut, site: Path, *words: str | Path) -> int:
    """Cut a command's power at every moment, each time at a fresh copy of the site, and let it run again.

    Returns the number of cuts.
    """
    kept = site.with_name("kept")
    shutil.copytree(site, kept, symlinks=True)
    before, before_held = served(site), held(site)
    whole = power.run(*words)
    assert whole.code == 0, whole.said
    after, after_held, rest = served(site), held(site), leftovers(site)
    cuts = moments(whole.changes)
    for moment in cuts:
        shutil.rmtree(site)
        shutil.copytree(kept, site, symlinks=True)
        cut = power.run(*words, before=moment)
        told = f"{words[0]} cut before change {moment}, {whole.changes[moment]}"
        assert cut.code == -9, told
        assert served(site) in (before, after), told
        assert (
            before_held.items() & after_held.items() <= held(site).items() <= before_held.items() | after_held.items()
        ), told
        again = power.run(*words)
        assert again.code == 0, f"{told}: {again.said}"
        assert (served(site), held(site), leftovers(site)) == (after, after_held, rest), told
    return len(cuts)


def test_import(power: PowerCut, site: Path, second: Path) -> None:
    assert cut_everywhere(power, site, "import", "--trust-first", second, "--root", site) > 15


def test_publish(power: PowerCut, site: Path, second: Path) -> None:
    assert power.run("import", "--trust-first", second, "--root", site).code == 0
    assert cut_everywhere(power, site, "publish", "--root", site) > 15


def test_rollback(power: PowerCut, site: Path, second: Path) -> None:
    assert power.run("import", "--trust-first", second, "--root", site).code == 0
    assert power.run("publish", "--root", site).code == 0
    # not each command is the same twice: a second rollback would go one further back
    assert cut_everywhere(power, site, "rollback", "--to", "1", "--root", site) >= 3


def test_prune(power: PowerCut, site: Path, second: Path, tmp_path: Path) -> None:
    key = ed25519.read_key(tmp_path / "maker.key")
    for number in range(2, 5):
        bundle = make_bundle(tmp_path / "more", key, version=f"1.{number}", body=f"# {number}\n")
        assert power.run("import", "--trust-first", bundle, "--root", site).code == 0
        assert power.run("publish", "--root", site).code == 0
    assert cut_everywhere(power, site, "prune", "--keep", "1", "--root", site) > 5


def test_remove(power: PowerCut, site: Path, tmp_path: Path) -> None:
    other = make_bundle(tmp_path / "other", ed25519.read_key(tmp_path / "maker.key"), name="other", body="# other\n")
    assert power.run("import", "--trust-first", other, "--root", site).code == 0
    assert cut_everywhere(power, site, "remove", "other", "--root", site) > 8


def test_withdraw(power: PowerCut, site: Path, tmp_path: Path) -> None:
    other = make_bundle(tmp_path / "other", ed25519.read_key(tmp_path / "maker.key"), name="other", body="# other\n")
    assert power.run("import", "--trust-first", other, "--root", site).code == 0
    assert cut_everywhere(power, site, "remove", "small", "--withdraw", "--root", site) >= 3


def test_media(power: PowerCut, site: Path, second: Path, tmp_path: Path) -> None:
    """The last medium of a set completes the bundle; the others wait at the site."""
    words: list[str | Path] = ["split", second, "--size", "1500KB", "--output", tmp_path / "media"]
    split = power.run(*words, environment={"PENSTOCK_SIGNING_KEY": str(tmp_path / "maker.key")})
    assert split.code == 0, split.said
    *others, last = sorted(path.parent for path in (tmp_path / "media").rglob("bundle.json"))
    assert others
    for medium in others:
        assert power.run("import", "--trust-first", medium, "--root", site).code == 0
    assert cut_everywhere(power, site, "import", "--trust-first", last, "--root", site) > 10


def test_the_first_import_and_publication(power: PowerCut, tmp_path: Path) -> None:
    """Before there is anything: no key may be made twice, no empty publication be served."""
    bundle = make_bundle(tmp_path / "first", Ed25519PrivateKey.generate())
    root = tmp_path / "site"
    for words in (["import", "--trust-first", bundle], ["publish"]):
        whole = power.run(*words, "--root", root)
        assert whole.code == 0
    after = served(root)
    changes = {name: power_changes(power, bundle, tmp_path / name, name) for name in ("import", "publish")}
    for name, count in changes.items():
        for moment in range(0, count, 5):
            fresh = tmp_path / f"{name}-{moment}"
            if name == "publish":
                assert power.run("import", "--trust-first", bundle, "--root", fresh).code == 0
            words = [name, "--trust-first", bundle] if name == "import" else [name]
            assert power.run(*words, "--root", fresh, before=moment).code == -9
            assert not (fresh / "current").exists() or served(fresh).keys() == after.keys()
            for again in (["import", "--trust-first", bundle], ["publish"]):
                assert power.run(*again, "--root", fresh).code == 0, (name, moment)
            assert served(fresh).keys() == after.keys()
            assert not leftovers(fresh)
            shutil.rmtree(fresh)


def power_changes(power: PowerCut, bundle: Path, root: Path, name: str) -> int:
    """How many changes a command makes at a site that has nothing yet."""
    imported = power.run("import", "--trust-first", bundle, "--root", root)
    done = imported if name == "import" else power.run("publish", "--root", root)
    assert done.code == 0
    return len(done.changes)


class Workshop:
    """A manifest of two wheels and a file, all on this machine, with a cache and a key of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        links = folder / "links"
        links.mkdir(parents=True)
        wheel(links, "first")
        wheel(links, "second")
        (folder / "notes.txt").write_text("notes\n")
        digest = hashlib.sha256(b"notes\n").hexdigest()
        content = {
            "schema": 1,
            "name": "small",
            "version": "1.0",
            "targets": [{"name": "debian12", "release": "bookworm", "python": "3.11"}],
            "python": {"requirements": ["first", "second"]},
            "files": [{"name": "notes.txt", "url": (folder / "notes.txt").as_uri(), "sha256": digest}],
        }
        self.manifest = folder / "manifest.yml"
        self.manifest.write_text(yaml.safe_dump(content))
        self.cache, self.out = folder / "cache", folder / "out"
        self.environment = {
            "PENSTOCK_CACHE": str(self.cache),
            "PENSTOCK_SIGNING_KEY": str(folder / "maker.key"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(links),
            "PIP_EXTRA_INDEX_URL": "",
            "SOURCE_DATE_EPOCH": "1700000000",
        }

    def forget(self) -> None:
        """Go back to before anything was made, but for the key."""
        for folder in (self.cache, self.out):
            shutil.rmtree(folder, ignore_errors=True)


def test_lock(power: PowerCut, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop")
    lock = shop.folder / "reservoir.lock"
    whole = power.run("lock", shop.manifest, environment=shop.environment)
    assert whole.code == 0, whole.said
    made = lock.read_bytes()
    for moment in moments(whole.changes):
        shop.forget()
        lock.unlink()
        assert power.run("lock", shop.manifest, before=moment, environment=shop.environment).code == -9
        assert not lock.exists() or lock.read_bytes() == made
        assert power.run("lock", shop.manifest, environment=shop.environment).code == 0
        assert lock.read_bytes() == made


def test_build(power: PowerCut, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop")
    words: list[str | Path] = ["build", shop.manifest, "--output", shop.out]
    assert power.run("lock", shop.manifest, environment=shop.environment).code == 0
    assert power.run(*words, environment=shop.environment).code == 0
    made = files(shop.out)
    shop.forget()
    whole = power.run(*words, environment=shop.environment)
    cuts = moments(whole.changes)
    for moment in cuts:
        shop.forget()
        assert power.run(*words, before=moment, environment=shop.environment).code == -9
        shown = list(shop.out.glob("[!.]*"))
        assert all(files(shop.out / path.name) == files_below(made, path.name) for path in shown), whole.changes[moment]
        blobs = {path.name: digest for path, digest in _blobs(shop.cache)}
        assert all(name == digest for name, digest in blobs.items())
        assert power.run(*words, environment=shop.environment).code == 0
        assert files(shop.out) == made
        assert not leftovers(shop.out)
    assert len(cuts) > 10


def files_below(all_files: dict[str, str], folder: str) -> dict[str, str]:
    """The files of one folder, by their path in it."""
    return {
        path.removeprefix(f"{folder}/"): digest for path, digest in all_files.items() if path.startswith(f"{folder}/")
    }


def _blobs(cache: Path) -> Iterator[tuple[Path, str]]:
    for path in (cache / "blobs").glob("*"):
        if path.suffix != ".partial":
            yield path, hashlib.sha256(path.read_bytes()).hexdigest()
