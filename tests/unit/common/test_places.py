from __future__ import annotations

import pytest

from common.places import Path, dotted, from_dotted, from_pointer, pointer


@pytest.mark.parametrize(
    ("path", "written", "pointed"),
    [
        ((), "", ""),
        (("name",), "name", "/name"),
        (("containers", 0, "image"), "containers[0].image", "/containers/0/image"),
        (("matrix", 1, 2), "matrix[1][2]", "/matrix/1/2"),
    ],
)
def test_a_path_is_written_in_two_ways_and_read_again(path: Path, written: str, pointed: str) -> None:
    assert (dotted(path), pointer(path)) == (written, pointed)
    assert (from_dotted(written), from_pointer(pointed)) == (path, path)


def test_a_place_in_a_list_may_be_written_without_brackets() -> None:
    assert from_dotted("gpus.0.uuid") == ("gpus", 0, "uuid")


@pytest.mark.parametrize(("key", "pointed"), [("a/b", "/a~1b"), ("a~b", "/a~0b"), ("~1", "/~01"), ("", "/")])
def test_keys_are_escaped_as_the_standard_says(key: str, pointed: str) -> None:
    assert pointer((key,)) == pointed
    assert from_pointer(pointed) == (key,)


@pytest.mark.parametrize("key", ["01", "1a", "-1", "²"])
def test_what_only_looks_like_a_number_is_a_key(key: str) -> None:
    assert from_pointer(f"/ports/{key}") == ("ports", key)
