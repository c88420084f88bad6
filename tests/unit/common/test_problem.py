"""Problem details: what is written by one side is what the other side reads."""

from __future__ import annotations

import json

import pytest

from common import problem
from common.errors import ConflictError, InputError, NotFoundError, Problem, UnavailableError

NAME = Problem("name", "is taken", "choose another")


def written(status: int, *items: problem.Item, request_id: str = "r1") -> bytes:
    return json.dumps(problem.document(status, items, request_id)).encode()


def test_a_field_of_the_body_is_a_pointer() -> None:
    found = problem.item(Problem("gpus.0.uuid", "is unknown", "list them"), fields={"gpus", "name"})
    assert found == {"pointer": "/gpus/0/uuid", "detail": "is unknown", "hint": "list them"}


def test_a_parameter_goes_by_its_name_and_a_field_comes_first() -> None:
    assert problem.item(NAME, parameters={"name"})["parameter"] == "name"
    assert problem.item(NAME, fields={"name"}, parameters={"name"})["pointer"] == "/name"


@pytest.mark.parametrize("where", ["Docker", "/run/penstock", "names", "https://a.example/name"])
def test_what_is_not_of_the_request_stays_as_it_is(where: str) -> None:
    assert problem.item(Problem(where, "fails", ""), fields={"name"}, parameters={"name"})["where"] == where


def test_what_is_about_nothing_says_so() -> None:
    assert problem.item(Problem("", "fails", "look")) == {"detail": "fails", "hint": "look"}


def test_the_document_is_that_of_the_standard() -> None:
    items = [problem.in_body((), Problem("", "is not JSON", "mend it")), problem.in_parameter("name", NAME)]
    assert problem.document(409, items, "r1") == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "is not JSON. Hint: mend it\nname: is taken. Hint: choose another",
        "request_id": "r1",
        "errors": items,
    }


def test_the_reader_finds_class_place_reason_and_hint() -> None:
    items = [
        problem.in_body(("gpus", 0, "uuid"), Problem("", "is unknown", "list them")),
        problem.in_parameter("name", NAME),
        problem.item(Problem("Docker", "fails", "")),
        problem.item(Problem("", "fails too", "")),
    ]
    error = problem.read(422, written(422, *items))
    assert type(error) is InputError
    assert error.problems == (
        Problem("gpus[0].uuid", "is unknown", "list them"),
        NAME,
        Problem("Docker", "fails", ""),
        Problem("", "fails too", ""),
    )


def test_a_failure_of_the_other_side_names_the_request_and_a_refusal_does_not() -> None:
    away = problem.item(Problem("", "the database does not answer", "try again"))
    failed = problem.read(503, written(503, away))
    assert type(failed) is UnavailableError
    assert str(failed) == "the database does not answer. Hint: try again (request r1)"
    assert str(problem.read(409, written(409, problem.item(NAME)))) == "name: is taken. Hint: choose another"


def test_the_form_of_the_release_before_is_read_too() -> None:
    error = problem.read(404, b'{"errors": [{"where": "id", "reason": "no container c1", "cure": "list them"}]}')
    assert type(error) is NotFoundError
    assert error.problems == (Problem("id", "no container c1", "list them"),)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>Bad Gateway</html>",
        b"[]",
        b"null",
        b'{"detail": "Not Found"}',
        b'{"errors": []}',
        b'{"errors": 7}',
        b'{"errors": ["x"]}',
        b'{"errors": [{"detail": "x"}]}',
        b'{"errors": [{"detail": 7, "hint": "x"}]}',
        b'{"errors": [{"pointer": 7, "detail": "x", "hint": "x"}]}',
        b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "x"}]}',
    ],
)
def test_what_is_no_problem_of_ours_is_not_read(content: bytes) -> None:
    assert problem.read(409, content) is None


def test_each_text_is_cut_and_can_be_encoded() -> None:
    found = problem.in_body(("k" * 5000,), Problem("", "\ud800" + "x" * 5000, "\N{GRINNING FACE}"))
    assert (len(found["pointer"]), found["pointer"][-2:]) == (2000, "k…")
    assert found["detail"].startswith("\\ud800xx")
    assert found["hint"] == "\N{GRINNING FACE}"
    assert problem.read(422, written(422, found))


def test_no_password_of_an_address_travels() -> None:
    found = problem.item(Problem("", "https://ada:s3cret@mirror.example fails", ""))
    assert found["detail"] == "https://mirror.example fails"
    told = json.dumps({"errors": [{"detail": "https://ada:s3cret@mirror.example fails", "hint": ""}]})
    error = problem.read(409, told.encode())
    assert type(error) is ConflictError
    assert str(error) == "https://mirror.example fails."
