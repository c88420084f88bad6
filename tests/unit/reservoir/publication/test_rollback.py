"""Going back to an earlier publication, and how long that lasts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import ConflictError, IntegrityError, NotFoundError
from reservoir.intake.store import Store
from reservoir.publication import past_names
from reservoir.publication import publish as publishing
from reservoir.publication.prune import prune
from reservoir.publication.publish import publish, rollback
from reservoir.publication.status import status
from tests.unit.reservoir.parts import copied, make_bundle, publish_versions, take


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: Ed25519PrivateKey) -> Path:
    return publish_versions(tmp_path_factory.mktemp("published") / "site", key, 3)


@pytest.fixture
def site(tmp_path: Path, published: Path) -> Path:
    """A site that published three versions of one bundle, each with contents of its own."""
    return copied(published, tmp_path / "site")


def served(root: Path) -> str:
    return (Store(root).current / "files/notes.txt").read_text()


def test_the_publication_before_the_present_one_is_served_again(site: Path) -> None:
    done = rollback(site)
    assert (done.number, done.changed, done.rolled_back) == (2, True, True)
    assert served(site) == "notes body 2"
    assert rollback(site).number == 1
    assert rollback(site, 3).number == 3
    assert served(site) == "notes body 3"


def test_it_stays_while_nobody_publishes_on_purpose(site: Path) -> None:
    rollback(site, 1)
    again = publish(site, unattended=True)
    assert (again.number, again.changed, again.rolled_back) == (1, False, True)
    assert served(site) == "notes body 1"


def test_the_next_publication_on_purpose_has_a_new_number_and_ends_it(site: Path) -> None:
    rollback(site, 1)
    done = publish(site)
    assert (done.number, done.changed, done.rolled_back) == (4, True, False)
    assert served(site) == "notes body 3"
    assert publish(site, unattended=True).number == 4


def test_a_rollback_to_what_is_served_is_remembered(site: Path) -> None:
    assert rollback(site, 3).changed is False
    assert publish(site, unattended=True).rolled_back
    assert publish(site).rolled_back is False


def test_an_unattended_publication_takes_what_is_new_where_nobody_went_back(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    take(make_bundle(tmp_path / "made", key, version="4.0", body="body 4"), site)
    assert publish(site, unattended=True).number == 4


def test_an_interrupted_rollback_changes_nothing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(beside: Path, path: Path) -> Path:
        if path == Store(site).current:
            raise KeyboardInterrupt
        return beside.rename(path)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        rollback(site, 1)
    monkeypatch.undo()
    assert not Store(site).rolled_back()
    assert served(site) == "notes body 3"


def test_a_second_rollback_that_is_interrupted_before_the_switch_leaves_the_first(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    rollback(site)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_switch", killed)
        with pytest.raises(KeyboardInterrupt):
            rollback(site)
    assert Store(site).rolled_back()
    assert (publish(site, unattended=True).number, Store(site).serving()) == (2, 2)
    assert rollback(site).number == 1


def test_a_rollback_that_was_interrupted_after_the_switch_goes_no_further(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folders: object) -> None:
        if served(site) == "notes body 2":
            raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "flush", killed)
    with pytest.raises(KeyboardInterrupt):
        rollback(site)
    monkeypatch.undo()
    assert rollback(site).number == 2
    assert Store(site).rolled_back()
    assert rollback(site).number == 1, "that one was not interrupted"


@pytest.mark.parametrize("again", [True, False])
def test_a_publication_that_was_interrupted_before_it_was_served_is_none(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    take(make_bundle(tmp_path / "made", key, version="4.0", body="body 4"), site)
    monkeypatch.setattr(past_names, "remember", killed)
    with pytest.raises(KeyboardInterrupt):
        publish(site)
    monkeypatch.undo()
    assert (Store(site).publications / "4").is_dir(), "else nothing is tried"
    assert [one.number for one in status(site).publications] == [1, 2, 3]
    if again:
        assert publish(site).number == 4
        assert served(site) == "notes body 4"
        assert rollback(site).number == 3
    else:
        assert prune(site, keep=3).publications == []
        assert rollback(site).number == 2
    assert not list(Store(site).publications.glob(".*"))


def test_a_publication_that_was_interrupted_after_it_was_served_counts(
    site: Path, tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folders: object) -> None:
        if served(site) == "notes body 4":
            raise KeyboardInterrupt

    take(make_bundle(tmp_path / "made", key, version="4.0", body="body 4"), site)
    monkeypatch.setattr(publishing, "flush", killed)
    with pytest.raises(KeyboardInterrupt):
        publish(site)
    monkeypatch.undo()
    assert rollback(site).number == 3
    assert Store(site).numbers() == [1, 2, 3, 4]
    assert rollback(site, 4).number == 4


@pytest.mark.parametrize("number", [0, 9])
def test_a_publication_that_there_is_not(site: Path, number: int) -> None:
    with pytest.raises(NotFoundError, match=r"choose one of those that are kept: 1, 2, 3"):
        rollback(site, number)
    assert served(site) == "notes body 3"


def test_there_is_nothing_before_the_first(site: Path) -> None:
    rollback(site, 1)
    with pytest.raises(NotFoundError, match="no publication before this one"):
        rollback(site)


def test_nodes_must_be_able_to_read_it(site: Path) -> None:
    record = Store(site).publications / "1/publication.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"layout": 1}))
    with pytest.raises(ConflictError, match="cannot read its trees"):
        rollback(site, 1)
    assert served(site) == "notes body 3"


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"bundles": []}', '{"layout": 1, "bundles": "x"}', "\x00"])
def test_a_publication_that_does_not_say_what_it_is_made_of_is_told(site: Path, content: str) -> None:
    (Store(site).publications / "1/publication.json").write_text(content)
    with pytest.raises(IntegrityError, match="does not say what it was made of"):
        rollback(site, 1)
    assert served(site) == "notes body 3"


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_a_damaged_memory_of_a_rollback_is_told(site: Path, tmp_path: Path, content: str) -> None:
    Store(site).rollback.write_text(content)
    with pytest.raises(IntegrityError, match=r"rollback.json: .*damaged"):
        publish(site, unattended=True)
    assert rollback(copied(site, tmp_path / "other")).rolled_back
    assert publish(site).rolled_back is False
