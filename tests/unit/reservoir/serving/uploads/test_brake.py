"""How long who guesses passwords is not heard."""

from __future__ import annotations

from reservoir.serving.uploads import brake
from reservoir.serving.uploads.brake import SECONDS, TRIES, Brake


def test_who_is_wrong_too_often_waits_until_it_was_long_ago() -> None:
    moment = 0.0
    guard = Brake(lambda: moment)
    for _ in range(TRIES):
        assert guard.wait_s("here") == 0
        guard.note("here")
        moment += 1
    assert guard.wait_s("here") == SECONDS - TRIES
    assert guard.wait_s("elsewhere") == 0
    moment = SECONDS
    assert guard.wait_s("here") == 0
    guard.note("here")
    assert guard.wait_s("here") == 1


def test_many_addresses_fill_no_memory() -> None:
    guard = Brake(lambda: 0.0)
    for number in range(brake.MOST + 5):
        guard.note(str(number))
    assert len(guard._wrong) == brake.MOST
