"""Which tag of an image is the newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.resources.images.versions import key, newest


def test_the_order_of_tags() -> None:
    ordered = ["edge", "stable", "v1.9", "2", "3.9", "3.12rc1", "3.12-slim", "3.12", "3.12.1", "19.02-py3", "21.10-py3"]
    assert sorted(set(ordered), key=key) == ordered
    assert newest(["3.13", "latest", "4"]) == "latest"


@given(st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True), min_size=1))
def test_there_is_always_one_newest_tag_whatever_the_order(tags: list[str]) -> None:
    assert newest(tags) == newest(sorted(tags)) in tags
