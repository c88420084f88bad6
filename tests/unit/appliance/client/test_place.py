"""Errors of a command in a session, as its control frames tell them."""

from __future__ import annotations

import pytest

from appliance.client.place import error_of
from common.errors import ForbiddenError, PenstockError


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("session desk belongs to alice", hint="ask alice"),
        ForbiddenError("session desk belongs to alice"),
    ],
)
def test_an_error_is_told_as_the_other_side_had_it(error: PenstockError) -> None:
    told = error_of({"type": "error", "status": 403, "reason": str(error)})
    assert (type(told), str(told)) == (type(error), str(error))
