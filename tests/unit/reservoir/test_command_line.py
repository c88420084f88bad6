from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from appliance.cli import main
from tests.unit.reservoir.parts import flip_bit


def call(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """Run `penstock reservoir` in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["penstock", "reservoir", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_way_from_a_bundle_to_a_publication(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    answers = []
    for words in (
        ("verify", bundle, "--key", bundle / "penstock.pub"),
        ("import", bundle, "--root", site),
        ("import", bundle, "--root", site),
        ("publish", "--root", site),
        ("publish", "--root", site),
    ):
        assert call(monkeypatch, *words, "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["pinned"]
    assert [answer["changed"] for answer in answers[1:]] == [True, False, True, False]
    assert answers[-1]["publication"] == 1


def test_a_damaged_bundle_ends_with_its_problems_and_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path
) -> None:
    for path in (bundle / "blobs/sha256").iterdir():
        flip_bit(path)
    assert call(monkeypatch, "verify", bundle) == 3
    said = capsys.readouterr()
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 4
    assert all("was changed" in line and "Cure: " in line for line in errors)
    assert said.out == ""


def test_keys_are_made_once_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_SIGNING_KEY", str(tmp_path / "signing.key"))
    assert call(monkeypatch, "key", "show") == 6
    assert call(monkeypatch, "key", "new") == 0
    assert call(monkeypatch, "key", "new") == 7
    capsys.readouterr()
    assert call(monkeypatch, "key", "show") == 0
    said = capsys.readouterr()
    assert said.out.startswith("-----BEGIN PUBLIC KEY-----")
    assert said.err.startswith("fingerprint ")


def test_a_path_that_cannot_be_is_an_error_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert call(monkeypatch, "import", bundle, "--root", tmp_path / "file") == 5
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {tmp_path}/file: File exists. Cure: ")


@pytest.mark.parametrize("words", [("verify",), ("build", "manifest.yml"), ("import", "--no-such-option")])
def test_arguments_that_are_missing_or_unknown_are_usage_errors(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert call(monkeypatch, *words) == 2
