"""Lines as messages of syslog: what RFC 5424 and RFC 6587 ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.resources.audit import chain, syslog
from api.resources.audit.chain import GENESIS, Head

ENTRY: dict[str, Any] = {"time": "2026-11-23T10:00:00.000001Z", "action": "project_create", "result": "done"}


def written(head: Head = GENESIS, **more: Any) -> tuple[bytes, dict[str, Any]]:
    line, _ = chain.seal(b"key", head, "20261123", ENTRY | more)
    return line.rstrip(b"\n"), json.loads(line)


def test_a_message_has_the_line_as_it_stands_in_the_log() -> None:
    line, entry = written()
    told = syslog.message(line, entry, "master")
    head = b'<109>1 2026-11-23T10:00:00.000001Z master penstock - project_create [meta sequenceId="1"]'
    assert told == head + b'[origin software="penstock"] ' + line
    assert syslog.framed(told) == str(len(told)).encode() + b" " + told


def test_what_was_refused_is_a_warning_and_numbers_begin_anew_where_syslog_has_no_larger_ones() -> None:
    assert syslog.message(*written(result="refused"), "master").startswith(b"<108>1 ")
    line, entry = written(Head(2**31 - 1, "0" * 64))
    assert b'[meta sequenceId="1"]' in syslog.message(line, entry, "master")


@pytest.mark.parametrize(("size", "whole"), [(100, True), (70_000, False)])
def test_a_datagram_is_never_too_large(size: int, *, whole: bool) -> None:
    line, entry = written(changes=[{"after": {"rules": "x" * size}}])
    told = syslog.datagram(line, entry, "master")
    assert len(told) <= syslog.MAX_DATAGRAM
    assert told.endswith(line) is whole
    assert ('"more_changes": true' in told.decode()) is not whole
