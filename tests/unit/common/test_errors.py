from __future__ import annotations

import pytest

from common import errors
from common.errors import InputError, PenstockError, Problem, UnavailableError, kind_of
from common.sentence import Sentence


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("https://ada:s3cret@mirror.example/a", "https://mirror.example/a"),
        ("https://ada:s3@cret@mirror.example/a@b", "https://mirror.example/a@b"),
        (
            "of http://ada@mirror.example:80/x and 'http://b:c@other.example'",
            "of http://mirror.example:80/x and 'http://other.example'",
        ),
        ("https://mirror.example/a@b?c=d@e", "https://mirror.example/a@b?c=d@e"),
        ("docker://debian@sha256:00", "docker://debian@sha256:00"),
    ],
)
def test_no_error_tells_the_password_in_an_address(told: str, left: str) -> None:
    problem = Problem(told, f"cannot download: {told}", f"look at {told}")
    assert str(problem) == f"{left}: cannot download: {left}. Hint: look at {left}"
    assert str(UnavailableError("cannot download", where=told)) == f"{left}: cannot download."


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)]


def test_each_kind_ends_the_command_line_with_a_code_of_its_own() -> None:
    assert sorted(kind.exit_code for kind in KINDS) == list(range(1, 12))


def test_each_status_below_500_has_one_kind_and_each_kind_is_found_by_its_status() -> None:
    refusals = {kind: kind.http_status for kind in KINDS if kind.http_status < 500}
    assert sorted(refusals.values()) == [401, 403, 404, 409, 422, 429]
    assert {kind: kind_of(status) for kind, status in refusals.items()} == {kind: kind for kind in refusals}


@pytest.mark.parametrize("status", [301, 405, 500, 501, 502, 503, 504])
def test_what_is_no_refusal_of_ours_may_pass(status: int) -> None:
    assert kind_of(status) is UnavailableError


@pytest.mark.parametrize("status", [400, 413])
def test_a_request_that_nobody_understands_or_takes_is_not_valid(status: int) -> None:
    assert kind_of(status) is InputError


def test_a_reason_stays_the_sentence_that_it_is_but_where_something_has_to_go() -> None:
    kept = InputError(Sentence("{node} refused it", node="worker1")).problems[0].reason
    assert isinstance(kept, Sentence)
    assert kept.parts == {"text": "{node} refused it", "values": {"node": "worker1"}}
    assert InputError(Sentence("{url}", url="https://a:b@c/")).problems[0].reason == "https://c/"
