"""What apt reads and what it does not was asked of apt itself, with an index of one package for each."""

from __future__ import annotations

import pytest

from reservoir.artifacts.debian.relations import readable


@pytest.mark.parametrize(
    "value",
    [
        " libc6 (>= 2.36), zlib1g (<< 1:2) | zlib-ng:any, a(=1~rc1)",
        " libc6,\n libgcc-s1 (>= 3.0)",
        " a ( >= 1 )",
        " a (> 1)",
        " a (>12)",
        " a (=1), b",
        " a (=1),",
        " a,",
        " a (1.0)",
        " a (1) | b",
        " a (~ 1)",
        "",
    ],
)
def test_a_relation_as_packages_have_it(value: str) -> None:
    assert readable("depends", value)


@pytest.mark.parametrize(
    "value",
    [
        " foo (>= 1",
        " foo (>= 1) bar",
        " foo (>= )",
        " foo (1)",
        " foo (12)",
        " foo ()",
        " foo (    )",
        " foo >= 1",
        " foo)",
        " x [amd64",
        " x [amd64]",
        " x <!nocheck>",
        " , |",
        " a|",
        " a | ",
        " a (=1)",
        " b, a (>1)\n",
        " a,, b",
        " (>= 1)",
    ],
)
@pytest.mark.parametrize("field", ["depends", "provides"])
def test_a_relation_that_apt_stumbles_over(field: str, value: str) -> None:
    assert not readable(field, value)


def test_a_package_provides_something_or_does_not_say_so() -> None:
    assert not readable("provides", " ")
    assert readable("description", " anything (")
