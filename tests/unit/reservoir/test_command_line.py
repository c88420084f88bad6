from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.cli import main
from appliance.cli.reservoir import publication, uploads
from common.errors import PartialError
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.download import cache
from reservoir.media import split
from reservoir.serving.uploads import server
from reservoir.serving.uploads.names import Names
from reservoir.serving.uploads.server import Server
from reservoir.signing import ed25519
from tests.unit.reservoir.media.test_split import SIZE
from tests.unit.reservoir.parts import flip_bit, make_bundle, publish_versions


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
        ("import", "--trust-first", bundle, "--root", site),
        ("import", "--trust-first", bundle, "--root", site),
        ("publish", "--root", site),
        ("publish", "--root", site),
    ):
        assert call(monkeypatch, *words, "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["pinned"]
    assert [answer["changed"] for answer in answers[1:]] == [True, False, True, False]
    assert answers[-1]["publication"] == 1


def test_a_bundle_that_is_left_out_is_named_and_the_rest_is_served(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bundle: Path,
    key: Ed25519PrivateKey,
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    other = make_bundle(tmp_path / "other", key, name="other", body="other contents", created="2026-02-02T03:04:05Z")
    assert call(monkeypatch, "import", "--trust-first", bundle, other, "--root", site, "--json") == 0
    at_fault = json.loads(capsys.readouterr().out)[1]["bundle"]
    assert call(monkeypatch, "publish", "--root", site, "--json") == PartialError.exit_code
    said = capsys.readouterr()
    assert f"{at_fault}: notes.txt: two different files have one name" in said.err
    assert any(at_fault in line for line in json.loads(said.out)["left_out"])
    assert call(monkeypatch, "publish", "--root", site, "--unattended", "--json") == 0
    said = capsys.readouterr()
    assert f"warning: left out of the publication: {at_fault}: notes.txt" in said.err
    assert not json.loads(said.out)["changed"]


def test_every_answer_says_whose_bundle_it_is_and_how_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bundle: Path,
    key: Ed25519PrivateKey,
    tmp_path: Path,
) -> None:
    site, name = tmp_path / "site", ed25519.fingerprint(key.public_key())
    assert call(monkeypatch, "import", bundle, "--root", site) == 3
    assert name in capsys.readouterr().err
    assert call(monkeypatch, "import", bundle, "--root", site, "--key", bundle / "penstock.pub") == 0
    assert f"signed by {name}, given with --key" in capsys.readouterr().out
    assert call(monkeypatch, "import", bundle, "--root", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["trust"]["how"] == "key"
    assert call(monkeypatch, "status", "--root", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["trust"]["fingerprint"] == name
    assert call(monkeypatch, "status", "--root", site) == 0
    assert name in capsys.readouterr().out


def test_two_bundles_at_once_are_one_answer(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bundle: Path,
    key: Ed25519PrivateKey,
    tmp_path: Path,
) -> None:
    other = make_bundle(tmp_path / "other", key, name="other")
    assert call(monkeypatch, "import", "--trust-first", bundle, other, "--root", tmp_path / "site", "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["bundle"].partition("-")[0] for answer in answers] == ["small", "other"]


def test_a_damaged_bundle_ends_with_its_problems_and_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path
) -> None:
    for path in (bundle / "blobs/sha256").iterdir():
        flip_bit(path)
    assert call(monkeypatch, "verify", bundle) == 3
    said = capsys.readouterr()
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 6
    assert all("was changed" in line and "Hint: " in line for line in errors)
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


def test_a_key_is_rotated_and_what_it_replaced_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_SIGNING_KEY", str(tmp_path / "signing.key"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767323045")
    assert call(monkeypatch, "key", "rotate") == 6
    assert call(monkeypatch, "key", "new") == 0
    old = capsys.readouterr().out.split()[-1]
    assert call(monkeypatch, "key", "rotate") == 0
    new = capsys.readouterr().out.split()[1]
    assert call(monkeypatch, "key", "show") == 0
    assert capsys.readouterr().err.splitlines() == [f"fingerprint {new}", f"replaced {old} on 2026-01-02"]


def test_media_are_split_verified_and_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_SIGNING_KEY", str(tmp_path / "signing.key"))
    bundle = make_bundle(tmp_path, ed25519.new_key(tmp_path / "signing.key"))
    assert call(monkeypatch, "split", bundle, "--size", "1.5MB", "-o", tmp_path / "media", "--json") == 0
    first, *others = json.loads(capsys.readouterr().out)["media"]
    site = tmp_path / "site"
    assert call(monkeypatch, "verify", first, "--json") == 0
    assert json.loads(capsys.readouterr().out)["missing"] == list(range(2, len(others) + 2))
    assert call(monkeypatch, "verify", first, *others, "--json") == 0
    assert json.loads(capsys.readouterr().out)["complete"]
    assert call(monkeypatch, "import", "--trust-first", first, "--root", site) == 0
    assert f"1 of {len(others) + 1} media, still missing 2, " in capsys.readouterr().out
    flip_bit(next((Path(others[0]) / "blobs/sha256").iterdir()))
    assert call(monkeypatch, "import", "--trust-first", *others, "--root", site) == 3
    said = capsys.readouterr()
    assert f"medium 2 of {len(others) + 1}: " in said.err
    assert call(monkeypatch, "publish", "--root", site) == 6


def test_a_receipt_goes_to_standard_output_or_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    assert call(monkeypatch, "import", "--trust-first", bundle, "--root", tmp_path / "site") == 0
    capsys.readouterr()
    assert call(monkeypatch, "receipt", "--root", tmp_path / "site") == 0
    assert json.loads(capsys.readouterr().out)["receipt"]["serial"] == 1
    assert call(monkeypatch, "receipt", "--root", tmp_path / "site", "-o", tmp_path / "receipt.json") == 0
    assert "receipt 2: 1 bundles" in capsys.readouterr().err
    assert json.loads((tmp_path / "receipt.json").read_bytes())["receipt"]["serial"] == 2


def test_media_of_two_bundles_are_not_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    other = make_bundle(tmp_path, Ed25519PrivateKey.generate(), version="2.0")
    assert call(monkeypatch, "verify", bundle, other) == 2
    assert "these are media of small-1.0-" in capsys.readouterr().err


def test_a_path_that_cannot_be_is_an_error_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert call(monkeypatch, "import", "--trust-first", bundle, "--root", tmp_path / "file") == 5
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {tmp_path}/file: File exists. Hint: ")


@pytest.mark.parametrize("words", [("verify",), ("build", "manifest.yml"), ("import", "--no-such-option")])
def test_arguments_that_are_missing_or_unknown_are_usage_errors(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert call(monkeypatch, *words) == 2


def test_back_to_an_earlier_publication_and_what_may_go(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    key: Ed25519PrivateKey,
) -> None:
    site = tmp_path / "site"
    for version in ("1.0", "2.0"):
        bundle = make_bundle(tmp_path / "made", key, version=version, body=version)
        call(monkeypatch, "import", "--trust-first", bundle, "--root", site)
        call(monkeypatch, "publish", "--root", site)
    capsys.readouterr()
    answers = []
    for words in (
        ("prune", "--keep", "1", "--dry-run"),
        ("rollback", "--to", "1"),
        ("publish", "--unattended"),
        ("status",),
        ("prune", "--keep", "1"),
    ):
        assert call(monkeypatch, *words, "--root", site, "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    would, back, unattended, status, pruned = answers
    assert (would["publications"], would["changed"]) == ([1], False)
    assert would["bytes"] > 2_000_000
    assert (back["publication"], back["changed"]) == (1, True)
    assert (unattended["publication"], unattended["changed"], unattended["rolled_back"]) == (1, False, True)
    assert (status["serving"], status["rolled_back"], status["prunable"]) == (1, True, 0)
    assert (pruned["publications"], pruned["bytes"], pruned["changed"]) == ([], 0, False)


def test_a_rollback_that_nobody_was_told_of_goes_no_further_when_it_is_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    site = publish_versions(tmp_path / "site", key, 3)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(publication, "show", killed)
        assert call(patched, "rollback", "--root", site) != 0
    capsys.readouterr()
    told = []
    for _ in range(2):
        assert call(monkeypatch, "rollback", "--root", site) == 0
        told.append(capsys.readouterr().out)
    assert told[0].startswith(
        "publication 2 is served already, by a rollback that was interrupted; run it once more to go further back; "
    )
    assert told[1].startswith("publication 1 is served again; it stays until")


def test_a_bundle_goes_by_name_unless_a_publication_needs_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    key: Ed25519PrivateKey,
) -> None:
    site = tmp_path / "site"
    for version in ("1.0", "2.0"):
        bundle = make_bundle(tmp_path / "made", key, version=version, body=version)
        call(monkeypatch, "import", "--trust-first", bundle, "--root", site)
        call(monkeypatch, "publish", "--root", site)
    call(
        monkeypatch,
        "import",
        "--trust-first",
        make_bundle(tmp_path / "made", key, name="third", body="third"),
        "--root",
        site,
    )
    capsys.readouterr()
    assert call(monkeypatch, "remove", "small", "--root", site) == 7
    assert "is needed by publication" in capsys.readouterr().err
    assert call(monkeypatch, "remove", "small", "--withdraw", "--dry-run", "--root", site) == 0
    assert "would be left out of the next publication" in capsys.readouterr().out
    answers = []
    for words in (("remove", "third", "--dry-run"), ("remove", "third")):
        assert call(monkeypatch, *words, "--root", site, "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    would, did = answers
    assert (would.pop("changed"), did.pop("changed")) == (False, True)
    assert would == did
    assert did["bytes"] > 2_000_000


def test_the_status_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    call(monkeypatch, "import", "--trust-first", bundle, "--root", site)
    call(monkeypatch, "publish", "--root", site)
    capsys.readouterr()
    assert call(monkeypatch, "status", "--root", site) == 0
    said = capsys.readouterr().out
    assert max(len(line) for line in said.splitlines()) <= 80
    assert "1 served" in said
    assert "1 debian, 1 file, 1 image, 2 image-part, 1 python" in " ".join(said.split())
    assert "prune` would free 0 B" in said


def test_names_that_uploads_may_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers = {
        "/": {"root": {}, "site": {}, "ada": {}},
        "/site/dev": {"projects": ["my-package"]},
        "/site/dev/my-package": {"1.0": {"+links": [{"log": [{"what": "upload", "who": "bob", "when": [2026]}]}]}},
    }
    transport = httpx.MockTransport(lambda asked: httpx.Response(200, json={"result": answers[asked.url.path]}))
    client = Server(httpx.Client(transport=transport, base_url="http://uploads"))
    monkeypatch.setattr(server, "connect", lambda *_: nullcontext(client))
    words = ("uploads", "allow", "My_Package", "--root", tmp_path, "--owner")
    assert call(monkeypatch, *words, "nobody") == 6
    assert "there is no such account" in capsys.readouterr().err
    assert call(monkeypatch, *words, "ada", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["owners"], said["changed"], said["hidden_of"]) == (["ada"], True, ["bob"])
    assert call(monkeypatch, *words, "ada") == 0
    assert "what bob uploaded of it before stays hidden" in capsys.readouterr().out
    assert call(monkeypatch, "uploads", "deny", "my-package", "--root", tmp_path) == 0
    assert call(monkeypatch, "uploads", "deny", "my-package", "--root", tmp_path) == 6
    assert "Hint: " in capsys.readouterr().err


def test_a_new_account_does_not_come_by_the_packages_of_a_removed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = [{"what": "upload", "who": "bob", "when": [2026]}, {"what": "upload", "who": "ada", "when": [2027]}]
    answers = {
        "/": {"root": {}, "site": {}, "ada": {}},
        "/site/dev": {"projects": ["bobs", "given-away"]},
        "/site/dev/bobs": {"1.0": {"+links": [{"log": log}]}},
        "/site/dev/given-away": {"1.0": {"+links": [{"log": log}]}},
    }
    made: list[str] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        if asked.method == "PUT":
            made.append(asked.url.path)
        return httpx.Response(200, json={"result": answers.get(asked.url.path, {})})

    client = Server(httpx.Client(transport=httpx.MockTransport(answer), base_url="http://uploads"))
    monkeypatch.setattr(server, "connect", lambda *_: nullcontext(client))
    Names(tmp_path).give("given-away", ["ada"])
    Names(tmp_path).give("given-ahead", ["bob", "ada"])
    assert call(monkeypatch, "uploads", "add-account", "bob", "--root", tmp_path) == 7
    said = capsys.readouterr().err
    assert "bobs, given-ahead would belong to the new one" in said
    assert "--with-packages" in said
    assert not made
    assert call(monkeypatch, "uploads", "add-account", "carl", "--root", tmp_path) == 0
    assert call(monkeypatch, "uploads", "add-account", "bob", "--with-packages", "--root", tmp_path) == 0
    assert made == ["/carl", "/bob"]


def test_uploads_that_a_publication_hides_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bundle: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(uploads, "hidden", lambda _: ["demo"])
    call(monkeypatch, "import", "--trust-first", bundle, "--root", tmp_path)
    for command in ("publish", "status"):
        assert call(monkeypatch, command, "--root", tmp_path) == 0
        assert "hidden, as the publication has them too: demo" in " ".join(capsys.readouterr().out.split())


def test_media_that_come_together_are_read_once(
    monkeypatch: pytest.MonkeyPatch, bundle: Path, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    """Neither is what one of them brought read anew with the next, nor is the list, which all have, decoded again."""
    media = split.split(bundle, SIZE, key, tmp_path / "media")
    assert len(media) > 1
    again: list[Path] = []
    decoded: list[str] = []
    decode = bundles.decode

    def reads_as(path: Path, sha256: str) -> bool:
        again.append(path)
        return cache.reads_as(path, sha256)

    def decoding(content: bytes, where: str) -> Bundle:
        decoded.append(where)
        return decode(content, where)

    monkeypatch.setattr("reservoir.intake.arrival.reads_as", reads_as)
    monkeypatch.setattr(bundles, "decode", decoding)
    assert call(monkeypatch, "import", "--trust-first", *media, "--root", tmp_path / "site") == 0
    assert [path for path in again if path.parent.name != "record"] == []
    assert len(decoded) == 1
