from __future__ import annotations

import pytest

from reservoir.manifest import credentials

SOURCES = (
    "https://ada:s%40cret@packages.example/team-a/simple/",
    "https://bob:other@packages.example/team-b/simple/",
    "http://carol:third@mirror.example:8080/debian",
    "https://open.example/simple/",
)
KNOWN = credentials.logins(SOURCES)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://ada:s%40cret@packages.example/simple/", "https://packages.example/simple/"),
        ("https://token@packages.example:8443/a?b=c#sha256=d", "https://packages.example:8443/a?b=c#sha256=d"),
        ("https://packages.example/a@b", "https://packages.example/a@b"),
        ("file:///srv/wheels/one.whl", "file:///srv/wheels/one.whl"),
        ("built from .", "built from ."),
        ("docker://registry.example/a:1", "docker://registry.example/a:1"),
    ],
)
def test_what_is_told_of_an_address(address: str, told: str) -> None:
    assert credentials.public(address) == told


@pytest.mark.parametrize(
    ("address", "user"),
    [
        ("https://packages.example/team-a/files/one.whl", ("ada", "s@cret")),
        ("https://packages.example/team-b/files/one.whl", ("bob", "other")),
        ("http://mirror.example:8080/debian/pool/one.deb", ("carol", "third")),
    ],
)
def test_each_source_is_asked_as_its_own_address_says(address: str, user: tuple[str, str]) -> None:
    found = credentials.login(KNOWN, address)
    assert found
    assert (found.user, found.password) == user


@pytest.mark.parametrize(
    "address",
    [
        "https://open.example/simple/one/",
        "https://packages.example.org/team-a/one.whl",
        "http://packages.example/team-a/one.whl",
        "https://packages.example:8443/team-a/one.whl",
        "http://mirror.example/debian/one.deb",
    ],
)
def test_nobody_else_hears_of_a_password(address: str) -> None:
    assert credentials.login(KNOWN, address) is None


def test_a_port_is_named_where_it_is_not_the_usual_one() -> None:
    assert [one.place for one in KNOWN] == [
        "https://packages.example/team-a/simple/",
        "https://packages.example/team-b/simple/",
        "http://mirror.example:8080/debian",
    ]
