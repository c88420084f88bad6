from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservoir.scan.versions import Compare, comparison

# each list is in order, oldest first
DEBIAN = [
    "1.0~~",
    "1.0~rc1-1",
    "1.0-0.1",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1+deb12u1",
    "1.0-1+deb12u10",
    "1.0a-1",
    "1.0z-1",
    "1.0+dfsg-1",
    "1.9-1",
    "1.10-1",
    "1:0.1-1",
]
RPM = [
    "1.0~rc1-1",
    "1.0~rc1^git1-1",
    "1.0-1.el9",
    "1.0-1.el9_2",
    "1.0-2.el9",
    "1.0^git1-1",
    "1.0.1-1",
    "1.2-1",
    "1.10-1",
    "1:0.5-1",
]
PYPI = ["1.0.dev1", "1.0a1", "1.0rc1", "1.0", "1.0.post1", "1.1", "1.10", "1!0.1"]
APK = ["1.0_alpha1-r0", "1.0_rc1-r0", "1.0-r0", "1.0-r1", "1.0-r10", "1.0_p1-r0", "1.0a-r0", "1.2-r0", "1.10-r0"]
ORDERS = [
    ("Debian:12", DEBIAN),
    ("Rocky Linux:9", RPM),
    ("PyPI", PYPI),
    ("Ubuntu:24.04:LTS", DEBIAN),
    ("Alpine:v3.20", APK),
    ("Wolfi", APK),
]


@pytest.mark.parametrize(("ecosystem", "versions"), ORDERS)
def test_each_ecosystem_has_its_own_order(ecosystem: str, versions: list[str]) -> None:
    compare = comparison(ecosystem)
    for older, newer in itertools.combinations(versions, 2):
        assert compare(older, newer) < 0, (older, newer)
        assert compare(newer, older) > 0, (older, newer)


@pytest.mark.parametrize(
    ("ecosystem", "one", "other"),
    [
        ("PyPI", "1.0", "1.0.0"),
        ("PyPI", "2.1.0+cu118", "2.1.0"),
        ("PyPI", "1.0-post1", "1.0.post1"),
        ("Debian:12", "0:1.0-1", "1.0-1"),
        ("Debian:12", "1.0", "1.0-0"),
        ("Debian:12", "1.00-01", "1.0-1"),
        ("Ubuntu:22.04:LTS", "1.0-0ubuntu1", "0:1.00-0ubuntu1"),
        ("AlmaLinux:9", "0:1.0-1", "1.0-1"),
        ("Red Hat:enterprise_linux:9", "1.0-1", "1.0"),
        ("Rocky Linux:9", "1.001-1", "1.1-1"),
    ],
)
def test_versions_that_are_written_differently_are_one(ecosystem: str, one: str, other: str) -> None:
    assert comparison(ecosystem)(one, other) == 0
    assert comparison(ecosystem)(other, one) == 0


@pytest.mark.parametrize(
    ("ecosystem", "text"), [("PyPI", "2004d-ish!"), ("Debian:12", "not a version"), ("x", "a:1-1")]
)
def test_what_is_no_version_is_not_compared(ecosystem: str, text: str) -> None:
    with pytest.raises(ValueError):
        comparison(ecosystem)(text, "1.0")


@pytest.mark.parametrize("ecosystem", ["Haiku:1", "npm", "", "debian:12"])
def test_of_an_unknown_ecosystem_nothing_is_compared(ecosystem: str) -> None:
    with pytest.raises(ValueError, match="nobody knows whether"):
        comparison(ecosystem)("1.0", "1.0")


WORDS = {
    "Debian:12": st.from_regex(r"\A([0-2]:)?[0-9][0-9a.+~]{0,5}(-[0-9a.+~]{1,4})?\Z"),
    "Rocky Linux:9": st.from_regex(r"\A([0-2]:)?[0-9a][0-9a.~^_]{0,5}-[0-9][0-9a.]{0,3}\Z"),
    "PyPI": st.from_regex(r"\A[0-3](\.[0-3]){0,3}((a|b|rc)[0-2])?(\.post[0-2])?(\.dev[0-2])?\Z"),
}


@pytest.mark.parametrize("ecosystem", WORDS)
def test_an_order_contradicts_itself_never(ecosystem: str) -> None:
    compare: Compare = comparison(ecosystem)

    @given(st.tuples(*[WORDS[ecosystem]] * 3))
    def check(versions: tuple[str, str, str]) -> None:
        one, two, three = versions
        assert compare(one, one) == 0
        assert compare(one, two) == -compare(two, one)
        if compare(one, two) <= 0 and compare(two, three) <= 0:
            assert compare(one, three) <= 0

    check()
