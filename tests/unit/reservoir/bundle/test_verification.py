from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError, NotFoundError
from reservoir.bundle import bundles
from reservoir.bundle.verification import verify
from reservoir.signing import ed25519
from tests.unit.reservoir.parts import flip_bit, make_bundle


def blob(folder: Path, filename: str) -> Path:
    listed = json.loads((folder / bundles.LIST).read_bytes())["artifacts"]
    return folder / bundles.BLOBS / str(next(a["sha256"] for a in listed if a["filename"] == filename))


def refusal(folder: Path) -> str:
    with pytest.raises(IntegrityError) as caught:
        verify(folder)
    return str(caught.value)


def test_a_whole_bundle_is_whole(bundle: Path, key: Ed25519PrivateKey) -> None:
    seen: list[tuple[str, int, int]] = []
    found = verify(bundle, progress=lambda step, done=0, total=0: seen.append((step, done, total)))
    assert found.identity.startswith("small-1.0-")
    assert not found.pinned
    *_, (_, done, total), (last, _, _) = seen
    assert done == total == sum(found.bundle.sizes().values())
    assert last == "check that it can be published"
    assert verify(bundle, key.public_key()).pinned


def test_one_flipped_bit_is_found(bundle: Path) -> None:
    flip_bit(blob(bundle, "demo_python_1.json"))
    assert "demo_python_1.json was changed: its sha256 is" in refusal(bundle)


def test_everything_that_is_wrong_is_listed_at_once(bundle: Path) -> None:
    blob(bundle, "notes.txt").unlink()
    (bundle / bundles.BLOBS / ("f" * 64)).write_text("more")
    (bundle / "autorun.inf").write_text("more")
    (bundle / "blobs" / "sha512").mkdir()
    short = blob(bundle, "hello_1.0_amd64.deb")
    short.write_bytes(short.read_bytes()[:-1])
    (bundle / "bootstrap.py").write_text("print('mine')")
    said = refusal(bundle)
    for reason in (
        "notes.txt is missing",
        f"{'f' * 64}: is not in the bundle's list",
        "autorun.inf: is not in the bundle's list",
        "sha512: is not in the bundle's list",
        "hello_1.0_amd64.deb has 300002 bytes, not 300003",
        "bootstrap.py: was changed",
    ):
        assert reason in said


def test_a_file_in_the_place_of_the_blobs_leaves_all_of_them_missing(bundle: Path) -> None:
    shutil.rmtree(bundle / bundles.BLOBS)
    (bundle / bundles.BLOBS).write_text("no folder")
    assert "notes.txt is missing" in refusal(bundle)


def test_an_attachment_that_was_changed_or_is_missing_is_found(bundle: Path) -> None:
    (bundle / "sbom.cdx.json").write_bytes(b"[]")
    assert "sbom.cdx.json: was changed" in refusal(bundle)
    (bundle / "sbom.cdx.json").unlink()
    assert "sbom.cdx.json: is missing" in refusal(bundle)


def test_an_attachment_that_the_list_does_not_know_is_extra(bundle: Path) -> None:
    (bundle / "scan.json").write_bytes(b"{}")
    assert "scan.json: is not in the bundle's list" in refusal(bundle)


@pytest.mark.parametrize("name", ["lost+found", "System Volume Information", ".Trash-1000"])
def test_what_a_medium_brings_by_itself_is_no_extra(bundle: Path, tmp_path: Path, name: str) -> None:
    (bundle / name).mkdir()
    verify(bundle)
    (bundle / name).rmdir()
    (bundle / name).symlink_to(tmp_path)
    assert f"{name}: is not in the bundle's list" in refusal(bundle)
    (bundle / name).unlink()
    (bundle / name).write_text("more")
    assert f"{name}: is not in the bundle's list" in refusal(bundle)


def test_a_medium_that_cannot_be_read_names_the_file(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, opened = blob(bundle, "notes.txt"), ed25519.opened

    def scratched(path: Path) -> AbstractContextManager[BinaryIO]:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path)

    monkeypatch.setattr(ed25519, "opened", scratched)
    assert "notes.txt cannot be read: Input/output error" in refusal(bundle)


def test_a_link_is_no_blob(bundle: Path, tmp_path: Path) -> None:
    path = blob(bundle, "notes.txt")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "notes.txt is not a file" in refusal(bundle)


def _other_key(folder: Path) -> None:
    (folder / bundles.PUBLIC_KEY).write_bytes(ed25519.public_pem(Ed25519PrivateKey.generate()))


def _other_list(folder: Path) -> None:
    path = folder / bundles.LIST
    path.write_bytes(path.read_bytes().replace(b'"1.0"', b'"1.1"'))


def _no_signature(folder: Path) -> None:
    (folder / bundles.SIGNATURE).unlink()


def _without_key(folder: Path) -> None:
    (folder / bundles.PUBLIC_KEY).unlink()


def _no_key(folder: Path) -> None:
    (folder / bundles.PUBLIC_KEY).write_text("nothing")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_other_key, "the signature does not belong to the key"),
        (_other_list, "the signature does not belong to the key"),
        (_no_signature, "the bundle is not signed"),
        (_without_key, "its maker's public key is missing. Hint: give the folder of a medium"),
        (_no_key, "the bundle's key is damaged"),
    ],
)
def test_a_signature_that_does_not_hold_is_refused(bundle: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(bundle)
    assert reason in refusal(bundle)


def test_a_bundle_of_another_maker_is_refused_when_the_key_is_known(bundle: Path) -> None:
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        verify(bundle, Ed25519PrivateKey.generate().public_key())


def test_a_signed_list_that_makes_no_sense_is_refused(bundle: Path, key: Ed25519PrivateKey) -> None:
    content = (bundle / bundles.LIST).read_bytes().replace(b'"notes.txt"', b'"../notes.txt"')
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(ed25519.sign(key, content))
    assert "not the list of a bundle" in refusal(bundle)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'\n "version": "1.0"', b'\n "version": "one"', "'one' is not a version"),
        (b'"created": "2026-', b'"created": "26-', "pattern"),
        (b'"stanza"', b'"verse"', r"the metadata of hello_1.0_amd64.deb lacks stanza"),
        (b'"tag"', b'"label"', r"lacks tag"),
        (b'"version_sets"', b'"holds"', "bundle.json: holds: not the list of a bundle: Extra inputs are not permitted"),
    ],
)
def test_a_list_that_publication_could_not_use_is_refused(
    bundle: Path, key: Ed25519PrivateKey, old: bytes, new: bytes, reason: str
) -> None:
    content = (bundle / bundles.LIST).read_bytes()
    assert old in content
    (bundle / bundles.LIST).write_bytes(content.replace(old, new))
    (bundle / bundles.SIGNATURE).write_bytes(ed25519.sign(key, content.replace(old, new)))
    assert reason in refusal(bundle)


def test_no_bundle_at_all(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no bundle"):
        verify(tmp_path)


def test_an_older_bundle_of_that_name_is_replaced_whole(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    first = make_bundle(tmp_path, key)
    (first / "junk").write_text("junk")
    second = make_bundle(tmp_path, key, body="other")
    assert first == second
    verify(second)
    assert [path.name for path in second.parent.iterdir()] == ["small-1.0"]


def test_an_installer_that_the_list_does_not_know_is_extra(bundle: Path, key: Ed25519PrivateKey) -> None:
    listed = json.loads((bundle / bundles.LIST).read_bytes())
    del listed["installer"]["bootstrap.py"]
    content = json.dumps(listed).encode()
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(ed25519.sign(key, content))
    assert "bootstrap.py: is not in the bundle's list" in refusal(bundle)


@pytest.mark.parametrize("name", [bundles.LIST, bundles.SIGNATURE, bundles.PUBLIC_KEY, bundles.KEYS, "volume.json"])
def test_nothing_endless_is_read_before_the_signature_holds(bundle: Path, name: str) -> None:
    (bundle / name).unlink(missing_ok=True)
    (bundle / name).symlink_to("/dev/zero")
    (bundle / "volume.json.sig").touch()
    assert f"{name}: is no ordinary file" in refusal(bundle)


@pytest.mark.parametrize("name", [bundles.SIGNATURE, bundles.PUBLIC_KEY, "volume.json.sig"])
def test_a_key_or_a_signature_has_a_few_kilobytes_at_most(bundle: Path, name: str) -> None:
    (bundle / "volume.json").touch()
    (bundle / name).write_bytes(b" " * 4097)
    assert f"{name}: is longer than any file of its kind" in refusal(bundle)


def test_a_list_that_would_fill_the_memory_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ed25519, "LONGEST", 100)
    assert "bundle.json: is longer than any file of its kind" in refusal(bundle)


@pytest.mark.parametrize(
    "name", [*bundles.INSTALLER, "bundle.json", "bundle.json.sig", "penstock.pub", "blobs", "blobs/sha256"]
)
def test_what_lies_elsewhere_is_no_part_of_a_bundle(bundle: Path, name: str) -> None:
    """A link of a medium would have this machine read what it never meant to give."""
    elsewhere = bundle.parent / "elsewhere"
    (bundle / name).rename(elsewhere)
    (bundle / name).symlink_to(elsewhere)
    assert name.rsplit("/", maxsplit=1)[-1] in refusal(bundle)


def test_control_characters_from_a_medium_are_shown_and_not_done(bundle: Path) -> None:
    (bundle / "\x1b[2Jerror\n\x9b1m\u202egpj").touch()
    said = refusal(bundle)
    assert r"\x1b[2Jerror\n\x9b1m\u202egpj: is not in the bundle's list" in said
    assert said.isprintable()
