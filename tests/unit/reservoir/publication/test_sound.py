"""Bundles that an earlier release took for whole, and that fail where they are published."""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, ForbiddenError, IntegrityError, UnavailableError
from reservoir.artifacts import kinds, targets
from reservoir.artifacts.python import installable
from reservoir.artifacts.rpm import publish as rpm
from reservoir.contents.artifact import FileArtifact, PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from reservoir.intake.store import Store
from reservoir.publication import sound
from reservoir.publication.publish import publish
from reservoir.publication.removal import remove
from tests.unit.reservoir.parts import TARGET, artifact, make_bundle, take, wheel

STRANGE = {
    "KeyError": TargetRecord(name="new", os="rpm", release="9", arch="riscv64"),
    "OSError": TargetRecord(name="new", os="debian", release="r" * 300, arch="amd64"),
}


@pytest.fixture
def unchecked() -> Iterator[pytest.MonkeyPatch]:
    """Nobody looks at targets, as in an earlier release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "check", lambda _: iter(()))
        yield patch


@pytest.fixture
def bring(tmp_path: Path, key: Ed25519PrivateKey) -> Callable[..., str]:
    """Import a bundle of one file; says its identity."""

    def imported(name: str, *more: TargetRecord) -> str:
        path = tmp_path / f"{name}.txt"
        path.write_text(name)
        made = [(artifact(path, FileArtifact, path.name), path)]
        return take(
            make_bundle(tmp_path, key, name=name, made=made, targets=(TARGET, *more)), tmp_path / "site"
        ).identity

    return imported


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("failure", "target"), STRANGE.items(), ids=list(STRANGE))
def test_it_is_left_out_whatever_it_fails_by(
    tmp_path: Path,
    unchecked: pytest.MonkeyPatch,
    bring: Callable[..., str],
    failure: str,
    target: TargetRecord,
    *,
    known: bool,
) -> None:
    """A check that was added later names it, and else a trial of it alone does."""
    good, strange = bring("good"), bring("strange", target)
    if known:
        unchecked.undo()
    done = publish(tmp_path / "site", unattended=True)
    assert done.bundles == [good]
    (told,) = done.left_out
    assert told.where == f"{strange}: " + (told.where.partition(": ")[2] if known else "publication")
    assert known or f"it fails: {failure}: " in told.reason
    assert not list(Store(tmp_path / "site").publications.glob(".trial*"))


@pytest.mark.parametrize("unattended", [True, False])
@pytest.mark.usefixtures("unchecked")
def test_what_is_served_stays_and_is_named_where_a_later_release_fails_by_it(
    tmp_path: Path, bring: Callable[..., str], monkeypatch: pytest.MonkeyPatch, *, unattended: bool
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(rpm, "MACHINES", {"riscv64": "riscv64"})
        strange = bring("strange", STRANGE["KeyError"])
        assert publish(tmp_path / "site").bundles == [strange]
    good = bring("good")
    with pytest.raises(IntegrityError, match=f"{strange}: publication: it fails: KeyError: .*remove --withdraw"):
        publish(tmp_path / "site", unattended=unattended)
    assert Store(tmp_path / "site").serving() == 1
    remove(tmp_path / "site", strange, withdraw=True)
    assert publish(tmp_path / "site").bundles == [good]


def test_what_is_served_is_named_as_well_where_a_later_release_refuses_it(
    tmp_path: Path, bring: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(bundles: Sequence[Bundle], *_: Any) -> None:
        if any(bundle.name == "strange" for bundle in bundles):
            raise IntegrityError("is strange", where="strange.txt")

    strange = bring("strange")
    publish(tmp_path / "site")
    bring("good")
    monkeypatch.setattr(kinds, "publish", refuse)
    with pytest.raises(IntegrityError, match=f"{strange}: strange.txt: is strange"):
        publish(tmp_path / "site")
    assert Store(tmp_path / "site").serving() == 1


def without_record(path: Path) -> Path:
    path.write_bytes(path.read_bytes().replace(b"RECORD", b"RECORT"))
    return path


def with_more(path: Path, name: str, line: str, *, first: bool = False) -> Path:
    """Put a line more into a file that a wheel says something of itself in."""
    with zipfile.ZipFile(path) as made:
        files = {each: made.read(each).decode() for each in made.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in files.items():
            said = f"{line}{content}" if first else f"{content.rstrip()}\n{line}"
            archive.writestr(each, said if each.endswith(f".dist-info/{name}") else content)
    return path


@pytest.mark.parametrize(
    ("harmed", "asked"),
    [
        (without_record, "require_record"),
        (lambda path: with_more(path, "METADATA", "Requires-Dist: PyYAML (>=5.1.*)\n"), "require_metadata"),
        (lambda path: with_more(path, "WHEEL", "Wheel-Version: 2.0\n", first=True), "require_version"),
    ],
)
def test_what_pip_does_not_install_stays_served_and_can_be_mended_where_the_site_held_it_before(
    tmp_path: Path,
    bring: Callable[..., str],
    key: Ed25519PrivateKey,
    monkeypatch: pytest.MonkeyPatch,
    harmed: Callable[[Path], Path],
    asked: str,
) -> None:
    path = harmed(wheel(tmp_path))
    held = make_bundle(tmp_path, key, name="held", made=[(artifact(path, PythonArtifact, "demo"), path)])
    with monkeypatch.context() as earlier:
        earlier.setattr(installable, asked, lambda *_: None)
        identity = take(held, tmp_path / "site").identity
        publish(tmp_path / "site")
    good = bring("good")
    done = publish(tmp_path / "site")
    assert (done.bundles, done.left_out) == (sorted([good, identity]), [])
    (blob,) = Store(tmp_path / "site").imported()[identity].sizes()
    (Store(tmp_path / "site").blobs / blob).unlink()
    assert take(held, tmp_path / "site").changed
    # beside one that is at fault it is not looked at more closely
    clash = tmp_path / "more"
    clash.mkdir()
    (clash / "good.txt").write_text("other")
    made = [(artifact(clash / "good.txt", FileArtifact, "good.txt"), clash / "good.txt")]
    at_fault = take(make_bundle(clash, key, name="clash", made=made), tmp_path / "site").identity
    done = publish(tmp_path / "site")
    assert identity in done.bundles
    assert [problem.where for problem in done.left_out] == [f"{at_fault}: good.txt"]


def test_a_program_that_is_missing_is_no_bundles_fault(
    tmp_path: Path, bring: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path / "bin/tool"))

    bring("good")
    monkeypatch.setattr(kinds, "publish", fail)
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "site")


@pytest.mark.usefixtures("unchecked")
def test_it_is_an_error_and_no_traceback_where_nothing_else_is_there(tmp_path: Path, bring: Callable[..., str]) -> None:
    strange = bring("strange", STRANGE["KeyError"])
    with pytest.raises(IntegrityError, match=f"{strange}: publication: it fails: KeyError: 'riscv64'"):
        publish(tmp_path / "site")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_is_no_bundles_fault(
    tmp_path: Path, bring: Callable[..., str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, "of the disk")

    bring("good")
    monkeypatch.setattr(kinds, "publish", fail)
    with pytest.raises((OSError, UnavailableError)):
        publish(tmp_path / "site")


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (IntegrityError(""), True),
        (ConflictError(""), True),
        (KeyError("x"), True),
        (OSError(errno.ENAMETOOLONG, ""), True),
        (FileExistsError(errno.EEXIST, ""), True),
        (FileNotFoundError(errno.ENOENT, "", "/site/blobs/x"), True),
        (FileNotFoundError(errno.ENOENT, "", "/usr/bin/tool"), False),
        (FileNotFoundError(errno.ENOENT, ""), False),
        (ForbiddenError(""), False),
        (UnavailableError(""), False),
        (OSError(errno.EROFS, ""), False),
        (PermissionError(errno.EACCES, ""), False),
        (MemoryError(), False),
    ],
    ids=repr,
)
def test_what_may_be_a_bundles_fault(error: Exception, *, may_be: bool) -> None:
    assert sound.of_a_bundle(error, Path("/site")) is may_be
