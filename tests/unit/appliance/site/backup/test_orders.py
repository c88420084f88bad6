"""Orders about backups: what is done, and what their records say of it. Units and databases are played."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.site.backup import orders as module
from appliance.site.backup import restore
from appliance.site.backup.catalogue import Record
from appliance.site.backup.orders import Orders, begun, carry_out, look
from appliance.site.backup.restore import Restored
from common import process
from common.backup_protocol import MAX_ORDERS, BackupAction, BackupOrder, BackupOrderState
from common.errors import ConflictError, NotFoundError

NAME = "penstock-20261123-020000"
RECORD = Record(NAME, "2026-11-23T02:00:00Z", seconds={"restore": 1.5})


class Played:
    """Backups that note what is done with them."""

    folder = Path("/backups")

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.done: list[tuple[Any, ...]] = []

    def take(self, held: object) -> Record:
        return self._note("now")

    def verify(self, name: str | None, identity: None, held: object) -> Record:
        return self._note("verify", name)

    def drill(self, name: str | None, *_: object) -> Restored:
        return Restored(self._note("drill", name), 60, 2.5)

    def _note(self, *words: Any) -> Record:
        if self.error:
            raise self.error
        self.done.append(words)
        return RECORD

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self, None


def order(action: str = "now", number: int = 1, backup: str | None = None) -> BackupOrder:
    identity = f"00000000-0000-4000-8000-{number:012d}"
    at = datetime.now(UTC)
    return BackupOrder(id=identity, action=BackupAction(action), backup=backup, by="ann", ordered_at=at)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path, tmp_path / "backup")


@pytest.mark.parametrize(("action", "seconds"), [("now", 1.5), ("verify", 1.5), ("drill", 2.5)])
def test_what_was_ordered_is_done_and_its_record_names_the_backup(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, action: str, seconds: float
) -> None:
    played = Played()
    monkeypatch.setattr(restore, "drill", lambda backups, name, *_, **__: backups.drill(name))
    done = carry_out(begun(order(action)), orders, played.opened)
    assert played.done == [(action,) if action == "now" else (action, None)]
    assert (done.state, done.backup, done.seconds, done.reason) == (BackupOrderState.DONE, NAME, seconds, "")
    assert orders.all() == [done]
    assert done.finished_at is not None


def test_one_that_fails_says_why(orders: Orders) -> None:
    done = carry_out(begun(order()), orders, Played(ConflictError("a deploy is still running")).opened)
    assert (done.state, done.reason) == (BackupOrderState.FAILED, "a deploy is still running.")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError("x"), "an error that nobody foresaw: KeyError: 'x'"), (KeyboardInterrupt(), "ended from outside")],
)
def test_what_nobody_foresaw_is_in_the_record_too(orders: Orders, error: BaseException, reason: str) -> None:
    with pytest.raises(type(error)):
        carry_out(begun(order()), orders, Played(error).opened)
    (record,) = orders.all()
    assert (record.state, reason in record.reason) == (BackupOrderState.FAILED, True)
    assert f"`journalctl -u {module.unit_of(order().id)}`" in record.reason


@pytest.mark.parametrize(("said", "state"), [("active", "running"), ("inactive", "failed")])
def test_one_whose_unit_died_without_a_word_has_failed(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, said: str, state: str
) -> None:
    monkeypatch.setattr(process, "run", lambda *_, **__: f"{said}\n")
    orders.keep(begun(order()).model_copy(update={"state": BackupOrderState.RUNNING}))
    assert look(orders.all()[0], orders).state == state
    assert orders.all()[0].state == state
    assert ("`journalctl -u" in orders.all()[0].reason) == (state == "failed")


def test_a_start_is_a_unit_that_carries_it_out(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(process, "run", lambda words, **_: calls.append([str(word) for word in words]))
    module.start(begun(order()), orders)
    assert calls[0][0] == "systemd-run"
    assert calls[0][-3:] == ["backup", "carry-out", order().id]
    assert orders.get(order().id).state is BackupOrderState.ORDERED


def test_one_that_is_kept_after_a_clock_was_put_back_is_not_the_one_that_goes(orders: Orders, tmp_path: Path) -> None:
    for number in range(MAX_ORDERS):
        orders.keep(begun(order(number=number)))
    for path in (tmp_path / module.FOLDER).iterdir():
        os.utime(path, (path.stat().st_mtime + 3600,) * 2)
    orders.keep(begun(order(number=MAX_ORDERS)))
    assert orders.get(order(number=MAX_ORDERS).id)
    assert len(orders.all()) == MAX_ORDERS


def test_the_latest_records_stay_and_damaged_ones_stop_nothing(orders: Orders, tmp_path: Path) -> None:
    for number in range(MAX_ORDERS + 3):
        orders.keep(begun(order(number=number)))
    assert len(orders.all()) == MAX_ORDERS
    (tmp_path / module.FOLDER / "x.json").write_text("{")
    assert len(orders.all()) == MAX_ORDERS
    with pytest.raises(NotFoundError):
        orders.get("x")
