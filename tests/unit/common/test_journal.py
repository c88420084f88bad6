"""The journal's native protocol, as a socket of ours takes it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from common import journal, logs
from common.journal import Journal

MEMORY = 1 << 20


class Reader:
    """The end of the journal: one entry a datagram."""

    def __init__(self, address: Path) -> None:
        self.address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(5)
        self.sealed = False

    def entry(self) -> list[tuple[str, str]]:
        data, descriptors, _, _ = socket.recv_fds(self._socket, MEMORY, 1)
        if descriptors:
            assert data == b""
            seals = fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS)
            self.sealed = bool(seals & fcntl.F_SEAL_WRITE and seals & fcntl.F_SEAL_SEAL)
            data = os.pread(descriptors[0], os.fstat(descriptors[0]).st_size, 0)
            os.close(descriptors[0])
        return list(_fields(data))


def _fields(data: bytes) -> Iterator[tuple[str, str]]:
    while data:
        line, _, data = data.partition(b"\n")
        name, given, value = line.partition(b"=")
        if not given:
            (length,) = struct.unpack("<Q", data[:8])
            value, data = data[8 : 8 + length], data[8 + length :]
            assert data[:1] == b"\n"
            data = data[1:]
        yield name.decode(), value.decode()


@pytest.fixture
def reader() -> Iterator[Reader]:
    # not `tmp_path`: an address has 107 bytes
    with tempfile.TemporaryDirectory() as folder:
        yield Reader(Path(folder) / "socket")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_field_is_one_whatever_is_in_it(reader: Reader) -> None:
    given = [("MESSAGE", "one"), ("A", "x=y"), ("B", "two\nPRIORITY=0\n"), ("B", ""), ("C", "half \udc80")]
    Journal(reader.address).write(given)
    assert reader.entry() == [*given[:-1], ("C", "half \\udc80")]


def test_what_no_datagram_holds_comes_in_a_sealed_file(reader: Reader) -> None:
    Journal(reader.address).write([("MESSAGE", "x" * (1 << 22))])
    assert [(name, len(value)) for name, value in reader.entry()] == [("MESSAGE", 1 << 22)]
    assert reader.sealed


def test_only_what_systemd_gave_us_is_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        status = os.fstat(file.fileno())
        assert journal.takes(f"{status.st_dev}:{status.st_ino}", file.fileno())
        for other in (f"{status.st_dev}:{status.st_ino + 1}", "", "8", "a:b", "1:2:3"):
            assert not journal.takes(other, file.fileno())


@pytest.fixture
def journaled(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A service whose output systemd has given to the journal."""
    monkeypatch.setattr(journal, "takes", lambda *_: True)
    monkeypatch.setattr(logs, "Journal", lambda: Journal(reader.address))
    logs.write("penstock-agent", journal_stream="8:1", node="worker1")
    return reader


def seconds(log: Callable[[str], None], event: str) -> float:
    """Return how long it took to log an event."""
    begin = time.monotonic()
    log(event)
    return time.monotonic() - begin


def test_an_event_has_the_fields_by_which_it_is_found(journaled: Reader) -> None:
    session = "0b1b1b1b-0000-4000-8000-000000000000"
    with bound_contextvars(request_id="r1", caller="ann"):
        structlog.get_logger().warning("ends", id=f"session-{session}-1-0", node="worker2", by="bob", reason="a\nb")
    message, *fields = journaled.entry()
    assert message[1].startswith("level=warning event=ends ")
    assert sorted(fields) == [
        ("PENSTOCK_NODE", "worker1"),
        ("PENSTOCK_NODE", "worker2"),
        ("PENSTOCK_REQUEST", "r1"),
        ("PENSTOCK_SESSION", session),
        ("PENSTOCK_USER", "ann"),
        ("PENSTOCK_USER", "bob"),
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "penstock-agent"),
    ]


def test_what_fails_tells_where(journaled: Reader) -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        structlog.get_logger().exception("failed", session="s1")
    entry = dict(journaled.entry())
    assert (entry["PRIORITY"], entry["PENSTOCK_SESSION"]) == ("3", "s1")
    assert "ZeroDivisionError: by nothing" in entry["MESSAGE"]


def test_a_journal_that_hangs_is_waited_for_once_and_told_what_it_missed(
    journaled: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is the same journal's: what would wait there is written nowhere."""
    monkeypatch.setattr(journal, "TIMEOUT_S", 0.2)
    log = structlog.get_logger()
    taken = 0
    while (waited := seconds(log.info, "fills")) < 0.2:
        taken += 1
    assert waited < 5
    assert sum(seconds(log.info, "missed") for _ in range(100)) < 0.2
    assert capsys.readouterr().out == ""

    for _ in range(taken):
        assert dict(journaled.entry())["MESSAGE"] == "level=info event=fills"
    log.info("back")
    told, back = dict(journaled.entry()), dict(journaled.entry())
    assert (told["MESSAGE"], told["PRIORITY"]) == ('level=warning event="lines dropped" lines=101', "4")
    assert (told["SYSLOG_IDENTIFIER"], told["PENSTOCK_NODE"]) == ("penstock-agent", "worker1")
    assert back["MESSAGE"] == "level=info event=back"
    log.info("once")
    assert dict(journaled.entry())["MESSAGE"] == "level=info event=once"


def test_a_journal_that_is_away_costs_no_line(journaled: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    Path(journaled.address).unlink()
    structlog.get_logger().info("told", port=1)
    assert capsys.readouterr().out == "level=info event=told port=1\n"


def test_a_long_line_is_shown_by_its_beginning_and_its_end(journaled: Reader) -> None:
    try:
        raise ValueError("é" * 5000 + " why")
    except ValueError:
        structlog.get_logger().exception("unexpected")
    fields = dict(journaled.entry())
    assert len(fields["MESSAGE"].encode()) < 4096, "of 4096 bytes journalctl shows programs nothing"
    assert fields["MESSAGE"].startswith("level=error event=unexpected ")
    assert fields["MESSAGE"].endswith(' why"')
    assert "é" * 5000 in fields["PENSTOCK_LINE"]
