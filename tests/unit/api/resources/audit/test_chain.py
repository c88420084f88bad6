"""The chain of the audit log: whatever is done to its files shows, and what is wrong is named."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from api.resources.audit import chain
from api.resources.audit.chain import GENESIS, Discrepancy, Head, Verification

KEY = b"a key of this test"
DAYS = ("20261120", "20261121", "20261122")
LINES = 4
"""Of each day."""


def written(days: Sequence[str] = DAYS, lines: int = LINES, key: bytes = KEY) -> dict[str, list[bytes]]:
    """A log: so many lines each day."""
    head, log = GENESIS, dict[str, list[bytes]]()
    for day in days:
        for number in range(lines):
            line, head = chain.seal(key, head, day, {"user": "alice", "object": f"projects/ü-{number}"})
            log.setdefault(day, []).append(line)
    return log


def verified(log: Mapping[str, Sequence[bytes]], **heads: Head) -> Verification:
    files = ((day, b"".join(lines).splitlines(keepends=True)) for day, lines in log.items())
    return chain.verify(KEY, files, {who: [head] for who, head in heads.items()})


def found(log: Mapping[str, Sequence[bytes]], **heads: Head) -> list[Discrepancy]:
    return verified(log, **heads).findings


def head_of(line: bytes) -> Head:
    entry = chain.read(KEY, line.rstrip(b"\n"))
    assert entry
    return Head(entry["seq"], entry["mac"])


def test_a_log_as_it_was_written_is_well() -> None:
    log = written()
    done = verified(log, worker1=head_of(log[DAYS[2]][-1]), worker2=head_of(log[DAYS[0]][1]), worker3=GENESIS)
    assert (done.ok, done.lines, done.head.seq) == (True, 12, 12)
    assert verified({}).ok


def test_every_byte_that_is_changed_is_named_by_its_line() -> None:
    log = written(DAYS[:1])
    whole = b"".join(log[DAYS[0]])
    for place in range(len(whole)):
        for bit in (0x01, 0x20, 0x80):
            changed = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
            wrong = found({DAYS[0]: changed.splitlines(keepends=True)}, worker1=head_of(log[DAYS[0]][-1]))
            line = whole.count(b"\n", 0, place) + 1
            assert wrong, f"byte {place}, bit {bit}"
            assert any(one.line in (line, line + 1) or one.day == "" for one in wrong), f"byte {place}: {wrong}"
            assert len(wrong) <= 3, f"byte {place}: {wrong}"


def test_a_changed_line_alone_is_named() -> None:
    log = written()
    log[DAYS[1]][1] = log[DAYS[1]][1].replace(b"alice", b"mally")
    assert found(log) == [Discrepancy(DAYS[1], 2, "this line is not as it was written")]


@pytest.mark.parametrize(
    ("first", "last", "named"),
    [(1, 2, "line 2 of the log"), (1, 3, "lines 2 to 3 of the log"), (0, 2, "lines 1 to 2 of the log")],
)
def test_lines_that_were_removed_are_named(first: int, last: int, named: str) -> None:
    log = written()
    del log[DAYS[0]][first:last]
    (one,) = found(log)
    assert (one.day, one.line) == (DAYS[0], first + 1)
    assert named in one.what


def test_a_file_that_was_removed_is_missing() -> None:
    log = written()
    del log[DAYS[1]]
    assert found(log) == [Discrepancy(DAYS[2], 1, "lines 5 to 8 of the log before this one are missing")]


def test_what_was_cut_off_is_known_to_who_has_seen_it() -> None:
    log = written()
    head = head_of(log[DAYS[2]].pop())
    assert found(log) == [], "nobody has seen the line"
    assert found(log, worker1=head) == [Discrepancy("", 0, "the log ends with line 11, and worker1 has seen 12")]


def test_a_line_cut_in_two_is_named() -> None:
    log = written()
    log[DAYS[2]][-1] = log[DAYS[2]][-1][:-20]
    assert found(log) == [Discrepancy(DAYS[2], 4, "this line is cut off")]


def test_lines_that_were_swapped_are_named() -> None:
    log = written()
    log[DAYS[0]][1:3] = reversed(log[DAYS[0]][1:3])
    assert [(one.line, one.what) for one in found(log)] == [(3, "line 2 of the log stands too late")]


def test_files_that_were_swapped_are_named() -> None:
    log = written()
    log[DAYS[0]], log[DAYS[1]] = log[DAYS[1]], log[DAYS[0]]
    assert {(one.day, one.what) for one in found(log)} >= {
        (DAYS[0], f"this line is of {DAYS[1]}"),
        (DAYS[1], f"this line is of {DAYS[0]}"),
    }


def test_a_line_of_a_day_cannot_move_to_the_next() -> None:
    log = written()
    log[DAYS[1]].insert(0, log[DAYS[0]].pop())
    assert found(log) == [Discrepancy(DAYS[1], 1, f"this line is of {DAYS[0]}")]


def test_a_line_that_is_played_again_is_named() -> None:
    log = written()
    log[DAYS[2]].append(log[DAYS[0]][0])
    what = {one.what for one in found(log)}
    assert what == {f"this line is of {DAYS[0]}", "line 1 of the log stands here again"}


def test_a_line_of_somebody_without_the_key_is_named() -> None:
    log, other = written(), written(key=b"another key")
    log[DAYS[0]].insert(2, other[DAYS[0]][2])
    first, second = found(log)
    assert first == Discrepancy(DAYS[0], 3, "this line is not as it was written")
    assert second == Discrepancy(DAYS[0], 4, "what stands before this line was never there")


def test_an_older_log_that_was_put_back_and_went_on_is_known_to_who_saw_the_newer() -> None:
    log = written()
    seen = head_of(log[DAYS[2]][1])
    head = head_of(log[DAYS[1]][-1])
    log[DAYS[2]] = []
    for number in range(3):
        line, head = chain.seal(KEY, head, DAYS[2], {"user": "mally", "object": f"{number}"})
        log[DAYS[2]].append(line)
    assert found(log) == []
    assert found(log, worker1=seen) == [Discrepancy("", 0, "line 10 is another one than worker1 has seen")]


def test_lines_that_stand_too_late_take_time_by_their_number_and_not_by_its_square() -> None:
    key, lines = KEY, 12_000
    whole = written(DAYS[:1], lines, key)[DAYS[0]]
    began = time.process_time()
    assert verified({DAYS[0]: whole}).ok
    well_s = time.process_time() - began
    began = time.process_time()
    wrong = found({DAYS[0]: whole[1::2] + whole[-2::-2]})
    assert [one.what for one in wrong[:2]] == [
        "line 11999 of the log stands too late",
        "line 11997 of the log stands too late",
    ]
    assert len(wrong) == lines // 2
    assert time.process_time() - began < 5 * well_s


def test_a_line_that_stands_too_late_twice_is_there_again() -> None:
    log = written(DAYS[:1])
    second = log[DAYS[0]].pop(1)
    log[DAYS[0]] += [second, second]
    assert [one.what for one in found(log)] == [
        "line 2 of the log stands too late",
        "line 2 of the log stands here again",
    ]


def test_what_others_have_seen_is_told_once_of_each() -> None:
    log = written()
    seen = [head_of(line) for line in log[DAYS[2]]]
    del log[DAYS[2]][1:]
    forged = [Head(3, "0" * 64), Head(4, "0" * 64)]
    files = [(day, list(lines)) for day, lines in log.items()]
    assert chain.verify(KEY, files, {"worker1": seen, "worker2": forged}).findings == [
        Discrepancy("", 0, "the log ends with line 9, and worker1 has seen 12"),
        Discrepancy("", 0, "line 3 is another one than worker2 has seen"),
    ]


def test_deletions_by_the_clock_are_one_and_excuse_no_more_than_before() -> None:
    log = written()
    records = [
        {"day": day, "first": head_of(log[day][0]).seq, "last": (end := head_of(log[day][-1])).seq, "mac": end.mac}
        for day in DAYS[:2]
    ]
    clock = [{**one, "user": "", "time": f"{number}"} for number, one in enumerate(records)]
    (one,) = chain.together(clock)
    assert one == {
        "day": DAYS[0],
        "through": DAYS[1],
        "first": 1,
        "last": 8,
        "mac": records[1]["mac"],
        "user": "",
        "time": "1",
    }
    assert len(chain.together([clock[0], {**clock[1], "user": "root"}])) == 2
    seen, end = head_of(log[DAYS[0]][1]), head_of(log[DAYS[2]][-1])
    gone = chain.seal(KEY, end, DAYS[2], {"user": "", "time": "2", "deleted": {**records[1], "earlier": [clock[0]]}})[0]
    log[DAYS[2]].append(gone)
    del log[DAYS[0]]
    assert verified(log, worker1=seen).ok
    log[DAYS[2]][-1] = chain.seal(KEY, end, DAYS[2], {"user": "", "time": "2", "deleted": one})[0]
    assert [one.what for one in found(log)] == ["lines 1 to 4 of the log before this one are missing"]
    del log[DAYS[1]]
    assert verified(log, worker1=seen).ok
    del log[DAYS[2]][0]
    assert [one.what for one in found(log)] == ["lines 1 to 9 of the log before this one are missing"]


def deleted(log: dict[str, list[bytes]], day: str) -> None:
    """Delete a day as an administrator does."""
    first, last, end = head_of(log[day][0]), head_of(log[day][-1]), head_of(log[DAYS[2]][-1])
    tombstone = {"day": day, "first": first.seq, "last": last.seq, "mac": last.mac}
    log[DAYS[2]].append(chain.seal(KEY, end, DAYS[2], {"user": "root", "deleted": tombstone})[0])
    del log[day]


def test_files_that_an_administrator_deleted_are_told_and_not_wrong() -> None:
    log = written()
    seen = head_of(log[DAYS[0]][2])
    deleted(log, DAYS[0])
    deleted(log, DAYS[1])
    done = verified(log, worker1=seen)
    assert done.ok, done.findings
    assert [one["day"] for one in done.deleted] == [DAYS[0], DAYS[1]]


def test_a_deletion_excuses_no_other_line() -> None:
    log = written()
    deleted(log, DAYS[0])
    del log[DAYS[1]]
    assert [one.what for one in found(log)] == ["lines 1 to 8 of the log before this one are missing"]
