"""Names of images: which tag is the newest, and which references mean the same image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.resources.images import references
from api.resources.images.versions import key, newest

HUB = ".".join(("docker", "io"))
"""The registry that an engine means where a reference names none."""


def test_the_order_of_tags() -> None:
    ordered = ["edge", "stable", "v1.9", "2", "3.9", "3.12rc1", "3.12-slim", "3.12", "3.12.1", "19.02-py3", "21.10-py3"]
    assert sorted(set(ordered), key=key) == ordered
    assert newest(["3.13", "latest", "4"]) == "latest"


@given(st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True), min_size=1))
def test_there_is_always_one_newest_tag_whatever_the_order(tags: list[str]) -> None:
    assert newest(tags) == newest(sorted(tags)) in tags


@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ("registry:5000/torch:1.7", True),
        ("registry:5000/torch", False),
        ("registry:5000/torch@sha256:12ab", False),
        ("sha256:12ab34", True),
        ("12ab", True),
        ("12abff", False),
    ],
)
def test_which_references_mean_the_same_image(wanted: str, same: bool) -> None:
    assert references.means(wanted, "registry:5000/torch:1.7", "sha256:12ab34cd") is same


@pytest.mark.parametrize("known", ["sha256:12ab", "registry:5000/torch@sha256:12ab"])
@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ("registry:5000/torch@sha256:12ab", True),
        ("registry:5000/torch:2.0@sha256:12ab", True),
        ("registry:5000/torch@sha256:ffff", False),
        ("registry:5000/other@sha256:12ab", False),
        ("registry:5000/torch:2.0", False),
        ("sha256:12ab", True),
    ],
)
def test_a_digest_means_the_image_that_a_node_knows_by_it(wanted: str, same: bool, known: str) -> None:
    """Nodes tell it alone, or as Kubernetes does, behind the repository."""
    assert references.means(wanted, "registry:5000/torch:1.7", known) is same


@pytest.mark.parametrize("written", [f"{HUB}/library/rust:latest", "library/rust", f"index.{HUB}/library/rust"])
def test_what_may_be_left_out_of_a_reference_does_not_count(written: str) -> None:
    assert references.full(written) == references.full("rust") == "rust:latest"
