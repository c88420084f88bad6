"""Which names uploads may have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.errors import InputError, IntegrityError, NotFoundError, UnavailableError
from reservoir.publication import past_names
from reservoir.serving.uploads.names import Names


@pytest.fixture
def names(root: Path) -> Names:
    """The names of a site that publishes `demo`."""
    return Names(root)


@pytest.mark.parametrize("spelling", ["demo", "Demo", "DEMO"])
def test_a_published_name_is_shut_in_every_spelling(names: Names, spelling: str) -> None:
    assert names.shut(spelling)


@pytest.mark.parametrize("name", ["demos", "de-mo", "mine"])
def test_other_names_are_free(names: Names, name: str) -> None:
    assert not names.shut(name)


def test_an_allowance_opens_a_name_until_it_is_taken_back(names: Names) -> None:
    assert names.allow("Demo", ["ada"]) is True
    assert names.allow("demo", ["ada"]) is False
    assert names.allowed() == ["demo"]
    assert not names.shut("demo")
    assert names.published("demo")
    names.deny("DEMO")
    assert names.allowed() == []
    assert names.shut("demo")


def test_a_name_may_be_allowed_before_it_is_published(names: Names) -> None:
    names.allow("my_Package", ["ada"])
    names.allow("another.one", ["ada"])
    assert names.allowed() == ["another-one", "my-package"]


def test_owners_are_those_that_an_administrator_names(names: Names) -> None:
    assert names.owners("mine") == []
    assert names.give("Mine", ["bob", "ada"]) is True
    assert names.give("mine", ["ada", "bob"]) is False
    assert names.owners("MINE") == ["ada", "bob"]
    names.allow("demo", ["bob"])
    assert (names.owners("demo"), names.owners("mine")) == (["bob"], ["ada", "bob"])
    with pytest.raises(InputError, match="no owner"):
        names.give("mine", [])


def test_a_name_that_was_published_once_stays_shut(names: Names) -> None:
    shutil.rmtree(names.simple / "demo")
    assert not names.published("demo")
    assert names.shut("demo")
    (names.root / past_names.LIST).write_text("[]")
    with pytest.raises(IntegrityError, match=r"published-names\.json.*damaged"):
        names.shut("demo")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"allowed": 1}'])
def test_a_damaged_list_opens_nothing(names: Names, content: str) -> None:
    names.list.write_text(content)
    with pytest.raises(IntegrityError, match=r"uploads\.json: .*damaged.*Hint: remove it"):
        names.shut("demo")


def test_an_allowance_that_there_is_not(names: Names) -> None:
    with pytest.raises(NotFoundError, match="uploads list"):
        names.deny("demo")


def test_conflicts_are_the_uploads_that_are_hidden(names: Names) -> None:
    assert names.conflicts(["mine", "Demo"]) == ["demo"]
    names.allow("demo", ["ada"])
    assert names.conflicts(["mine", "Demo"]) == []


@pytest.mark.parametrize("name", ["", "..", "../demo", "demo/../demo", "-demo", "de mo"])
def test_what_is_no_name_is_refused(names: Names, name: str) -> None:
    with pytest.raises(InputError, match="not the name of a Python package"):
        names.shut(name)
    with pytest.raises(InputError):
        names.allow(name, [])


def test_without_a_publication_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="penstock reservoir publish"):
        Names(tmp_path).shut("demo")
