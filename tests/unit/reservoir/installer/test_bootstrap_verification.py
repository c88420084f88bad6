"""Bundles that are looked at with Python alone: damage, odd lists, and what is read before anybody is trusted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir.bundle import bundles
from reservoir.media import split
from tests.unit.reservoir.installer.machines import (
    Programs,
    Run,
    pem,
    product,
)
from tests.unit.reservoir.parts import flip_bit
from tests.unit.reservoir.signing.test_ed25519 import BOOTSTRAP


def test_a_bundle_is_verified_with_python_alone(
    bundle: Path, key: Ed25519PrivateKey, install: Run, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    (bundle / "lost+found").mkdir()
    assert install(bundle, "--verify-only", "--key", pem(bundle.parent, key)) == 0
    assert capsys.readouterr().out.endswith(" bytes\n")
    assert programs.commands == []


def _flipped(bundle: Path) -> None:
    flip_bit(min((bundle / bundles.BLOBS).iterdir()))


def _missing(bundle: Path) -> None:
    min((bundle / bundles.BLOBS).iterdir()).unlink()


def _extra(bundle: Path) -> None:
    (bundle / "autorun.inf").touch()


def _extra_blob(bundle: Path) -> None:
    (bundle / bundles.BLOBS / "more").touch()


def _attachment(bundle: Path) -> None:
    (bundle / "sbom.cdx.json").write_text("[]")


def _list(bundle: Path) -> None:
    flip_bit(bundle / bundles.LIST)


def _endless(bundle: Path) -> None:
    path = min((bundle / bundles.BLOBS).iterdir())
    path.unlink()
    path.symlink_to("/dev/zero")


def _endless_list(bundle: Path) -> None:
    (bundle / bundles.LIST).unlink()
    (bundle / bundles.LIST).symlink_to("/dev/zero")


def _linked(bundle: Path, name: str) -> None:
    (bundle / name).rename(bundle.parent / "elsewhere")
    (bundle / name).symlink_to(bundle.parent / "elsewhere")


def _linked_list(bundle: Path) -> None:
    _linked(bundle, bundles.LIST)


def _linked_blobs(bundle: Path) -> None:
    _linked(bundle, str(bundles.BLOBS))


def _linked_folder(bundle: Path) -> None:
    _linked(bundle, str(bundles.BLOBS.parent))


@pytest.mark.parametrize(
    "damage",
    [
        *(_flipped, _missing, _extra, _extra_blob, _attachment, _list, _endless, _endless_list),
        *(_linked_list, _linked_blobs, _linked_folder),
    ],
)
def test_the_check_with_python_alone_finds_damage(
    bundle: Path, install: Run, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(bundle)
    assert install(bundle, "--verify-only") == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_the_installer_of_what_is_installed_checks_another_bundle(
    tmp_path: Path, key: Ed25519PrivateKey, install: Run
) -> None:
    first, stranger = product(tmp_path, key), product(tmp_path, Ed25519PrivateKey.generate(), "2.0")
    assert install(first) == 0
    assert install(first, "--bundle", stranger) == 3
    assert install(first, "--bundle", product(tmp_path, key, "3.0")) == 0


def test_the_installer_shows_control_characters_and_does_not_do_them(
    bundle: Path, install: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (bundle / "\x1b[2J\n\u202egpj").touch()
    assert install(bundle, "--verify-only") == 3
    said = capsys.readouterr().err
    assert said.endswith(".\n")
    assert said.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        {"name": "penstock 0.9, signed by FINGERPRINT\x1b[8m"},
        {"name": "penstock\n"},
        {"name": "pen\u202estock"},
        {"name": None},
        {"version": "1.0, signed by FINGERPRINT\x1b[8m"},
        {"version": "1.0\n"},
        {"version": "\u0661.0"},
        {"version": 1},
        {"expires": "\x1b[8m"},
    ],
)
def test_a_bundle_cannot_write_what_people_compare(
    bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str], words: dict[str, object]
) -> None:
    """Whoever made a bundle signs it with a key of their own: nothing in it says whose it is."""
    listed = json.loads((bundle / bundles.LIST).read_text()) | words
    content = json.dumps(listed).encode()
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(base64.b64encode(key.sign(content)))
    assert install(bundle, "--verify-only") == 3
    said = capsys.readouterr()
    assert (said.out, "FINGERPRINT" in said.err) == ("", False)
    assert "\x1b" not in said.err


@pytest.mark.parametrize(
    ("name", "longest"), [(bundles.KEYS, 1 << 20), (bundles.PUBLIC_KEY, 4096), (bundles.SIGNATURE, 4096)]
)
def test_what_is_read_before_anybody_is_trusted_is_short(
    bundle: Path, install: Run, capsys: pytest.CaptureFixture[str], name: str, longest: int
) -> None:
    path = bundle / name
    path.touch()
    with path.open("ab") as file:
        file.truncate(longest + 1)
    assert install(bundle, "--verify-only") == 3
    assert f"{name}: is longer than any of its kind" in capsys.readouterr().err


def test_no_more_of_a_file_is_copied_than_its_list_says(tmp_path: Path) -> None:
    long, copy = tmp_path / "long", tmp_path / "copy"
    with long.open("wb") as file:
        file.truncate(5_000_000)
    with pytest.raises(BOOTSTRAP.RefusedError, match="was changed"):
        BOOTSTRAP.copied(long, copy, "0" * 64, 1_500_000)
    assert copy.stat().st_size == 1_500_001


@pytest.mark.parametrize("damage", [_extra, _extra_blob])
def test_a_bundle_with_files_in_no_list_installs_nothing(
    tmp_path: Path,
    key: Ed25519PrivateKey,
    install: Run,
    programs: Programs,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = product(tmp_path, key)
    damage(bundle)
    assert install(bundle) == 3
    assert "is not in the bundle's list" in capsys.readouterr().err
    assert programs.commands == []


def _listed(**changes: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | changes).encode()


ODD: dict[str, Sequence[Any]] = {
    "artifacts": ("x", 5, None, [{}], [[]]),
    "installer": (None, [], {"../x": "0" * 64}),
    "attachments": (None, [], {"x": "0"}),
    "created": (None, 1),
    "targets": (None, [1], [{"name": []}]),
    "version": ("1" * 5000, []),
    "expires": ([1], 1),
}


@pytest.mark.parametrize(
    "odd",
    [
        *(lambda _, text=text: text for text in (b"[]", b"{", b"5", b"null", b"\xff\xfe", b'{"schema": 1}')),
        *(lambda _, text=text: text for text in (b"[" * 200_000, b'{"schema": 1, "x": ' + b"9" * 5000 + b"}")),
        *(_listed(**{name: value}) for name, values in ODD.items() for value in values),
        lambda content: content.replace(b'"sha256": "', b'"sha256": "../'),
        lambda content: content.replace(b'"size": ', b'"size": 0.'),
        lambda content: content.replace(b'"filename": "', b'"filename": "\\u0000'),
    ],
)
def test_an_odd_list_is_refused_in_words(
    bundle: Path, key: Ed25519PrivateKey, install: Run, capsys: pytest.CaptureFixture[str], odd: Any
) -> None:
    """Whoever made a bundle signs it with a key of their own."""
    before = (bundle / bundles.LIST).read_bytes()
    content = odd(before)
    assert content != before
    (bundle / bundles.LIST).write_bytes(content)
    (bundle / bundles.SIGNATURE).write_bytes(base64.b64encode(key.sign(content)))
    for word in ("--verify-only", "--trust-first"):
        assert install(bundle, word, first="") == 3
        said = capsys.readouterr()
        assert (said.out, said.err[:7], said.err.count("\n")) == ("", "error: ", 1)
        assert "bundle.json: " in said.err
    assert install(bundle, first="") == 3
    assert "a key that this machine does not know" in capsys.readouterr().err, "who is not trusted is not read"


@pytest.mark.parametrize(
    "change", [{"number": 0}, {"number": 99}, {"number": "1"}, {"files": [["0" * 64]]}, {"files": {}}, {"cut": []}]
)
def test_an_odd_medium_is_refused_in_words(
    tmp_path: Path,
    bundle: Path,
    key: Ed25519PrivateKey,
    install: Run,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
) -> None:
    medium, *_ = split.split(bundle, 2_300_000, key, tmp_path / "media")
    content = json.dumps(json.loads((medium / "volume.json").read_text()) | change).encode()
    (medium / "volume.json").write_bytes(content)
    (medium / "volume.json.sig").write_bytes(base64.b64encode(key.sign(content)))
    assert install(medium, "--verify-only") == 3
    assert "volume.json: " in capsys.readouterr().err
