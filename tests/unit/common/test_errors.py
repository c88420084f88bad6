from __future__ import annotations

import pytest

from common.errors import Problem, UnavailableError


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
