"""The files that agent and shim share: the same bytes on both sides, and changes that are seen whole or not at all."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from appliance.gpu import layout, share_files
from appliance.gpu.layout import Interval, Limit, Total
from appliance.gpu.share_files import LimitsFile
from appliance.gpu.timetable import Window
from common.errors import UnavailableError
from common.gpu.kinds import Compute

HEADER = Path(layout.__file__).parent / "shim/layout.h"
RECORDS = {
    "psg_timetable": layout.TimetableRecord,
    "psg_limit": layout.LimitRecord,
    "psg_limits": layout.LimitsRecord,
    "psg_total": layout.TotalRecord,
    "psg_balance": layout.BalanceRecord,
    "psg_slot": layout.SlotRecord,
    "psg_interval": layout.IntervalRecord,
    "psg_log": layout.LogRecord,
    "psg_account": layout.AccountHead,
}
CONSTANTS = {
    "PSG_VERSION": layout.VERSION,
    "PSG_GPUS": layout.GPUS,
    "PSG_UUID": layout.UUID_BYTES,
    "PSG_SLOTS": layout.SLOTS,
    "PSG_INTERVALS": layout.INTERVALS,
    "offsetof(struct psg_account, log)": layout.LOGS_AT,
    "PSG_USED_MASK": layout.USED_MASK,
    "PSG_ENDLESS": layout.ENDLESS_NS,
    "PSG_COMPUTE_OFF": layout.COMPUTE[Compute.OFF],
    "PSG_COMPUTE_STRICT": layout.COMPUTE[Compute.STRICT],
    "PSG_COMPUTE_FAIR": layout.COMPUTE[Compute.FAIR],
    "sizeof(struct psg_account)": layout.ACCOUNT_BYTES,
}
HALF = Limit("GPU-1", 1 << 30, 500, Compute.FAIR)
WHOLE = Limit("GPU-2", 0, 1000, Compute.OFF)


def read(path: Path) -> layout.LimitsRecord:
    """What stands in a limits file."""
    return layout.LimitsRecord.from_buffer_copy(path.read_bytes())


def spoil(path: Path, **fields: int) -> None:
    """Write other values into a limits file."""
    record = read(path)
    for name, value in fields.items():
        setattr(record, name, value)
    path.write_bytes(bytes(record))


def test_every_field_lies_where_the_header_has_it(tmp_path: Path) -> None:
    ours: dict[str, int] = dict(CONSTANTS)
    for name, record in RECORDS.items():
        for field in record._fields_:
            ours[f"offsetof(struct {name}, {field[0]})"] = getattr(record, field[0]).offset
            ours[f"sizeof(((struct {name} *)0)->{field[0]})"] = getattr(record, field[0]).size
    lines = [f'printf("%llu\\n", (unsigned long long)({expression}));' for expression in ours]
    lines += ['fputs(PSG_LIMITS_MAGIC "\\n" PSG_ACCOUNT_MAGIC "\\n", stdout);']
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include "{HEADER}"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {" ".join(lines)} }}\n'
    )
    subprocess.run(["gcc", "-std=gnu17", "-o", tmp_path / "layout", source], check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    assert dict(zip(ours, map(int, said[:-2]), strict=True)) == ours
    assert said[-2:] == [layout.LIMITS_MAGIC.decode(), layout.ACCOUNT_MAGIC.decode()]


def test_limits_are_complete_when_the_file_is_there_and_known_again(tmp_path: Path) -> None:
    path = tmp_path / "c1/limits/limits"
    LimitsFile.create(path, [HALF, WHOLE])
    assert path.stat().st_size == ctypes.sizeof(layout.LimitsRecord)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert LimitsFile(path).limits() == [HALF, WHOLE]
    assert list(path.parent.iterdir()) == [path]


def test_a_change_leaves_the_other_gpus_and_the_timetables(tmp_path: Path) -> None:
    file = LimitsFile.create(tmp_path / "limits", [HALF, WHOLE])
    window = Window(100, 0, 100, 0, 50)
    file.schedule({"GPU-1": window}, now_ns=0)
    less = Limit("GPU-1", 1 << 29, 250, Compute.FAIR)
    file.change([less])
    again = LimitsFile(tmp_path / "limits")
    assert again.limits() == [less, WHOLE]
    assert window in again.windows("GPU-1")
    assert again.windows("GPU-2") == (Window(), Window())


def test_a_timetable_never_overwrites_the_one_that_is_valid(tmp_path: Path) -> None:
    file = LimitsFile.create(tmp_path / "limits", [HALF])
    first, second, third = (Window(from_ns, 0, 100, 0, 50) for from_ns in (100, 200, 300))
    file.schedule({"GPU-1": first}, now_ns=0)
    file.schedule({"GPU-1": second}, now_ns=150)
    assert set(file.windows("GPU-1")) == {first, second}
    # the second has not come yet, so the third takes its place
    file.schedule({"GPU-1": third}, now_ns=160)
    assert set(file.windows("GPU-1")) == {first, third}
    file.schedule({"GPU-1": second}, now_ns=350)
    assert set(file.windows("GPU-1")) == {second, third}


def test_a_fallback_is_put_off_until_it_is_valid_and_then_stays_until_the_next_plan_is(tmp_path: Path) -> None:
    file = LimitsFile.create(tmp_path / "limits", [WHOLE, HALF])
    first, second, third = (Window(from_ns, 0, 100, 0, 50) for from_ns in (100, 700, 800))
    file.schedule({"GPU-1": first}, now_ns=0)
    assert file.fallback("GPU-1") == Window()
    assert file.put_off({"GPU-1": Window(400, 0, 100, 0, 25)}, now_ns=100)
    assert file.put_off({"GPU-1": Window(500, 0, 100, 0, 25)}, now_ns=200)
    # nobody put it off in time
    assert not file.put_off({"GPU-1": Window(900, 0, 100, 0, 25)}, now_ns=500)
    assert file.fallback("GPU-1").from_ns == 500
    file.schedule({"GPU-1": second}, now_ns=600)
    assert not file.put_off({"GPU-1": Window(900, 0, 100, 0, 25)}, now_ns=600), "the second is not valid yet"
    file.schedule({"GPU-1": third}, now_ns=650)
    assert second not in file.windows("GPU-1"), "of plans to come there is one"
    assert file.put_off({"GPU-1": Window(1100, 0, 100, 0, 25)}, now_ns=800)
    assert file.fallback("GPU-1").from_ns == 1100
    assert file.fallback("GPU-2") == Window()


def test_a_file_of_the_first_kind_has_plans_and_no_fallback(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    LimitsFile.create(path, [HALF])
    os.truncate(path, ctypes.sizeof(layout.FirstLimitsRecord))
    file, window = LimitsFile(path), Window(100, 0, 100, 0, 50)
    file.schedule({"GPU-1": window}, now_ns=0)
    assert file.put_off({"GPU-1": window}, now_ns=0)
    assert file.fallback("GPU-1") == Window()
    assert window in LimitsFile(path).windows("GPU-1")
    os.truncate(path, 100)
    with pytest.raises(UnavailableError):
        LimitsFile(path)


def test_what_is_uncounted_is_written_where_a_file_has_a_place_for_it(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    file = LimitsFile.create(path, [WHOLE, HALF])
    file.charge({"GPU-1": 5 << 30})
    assert (LimitsFile(path).uncounted("GPU-1"), LimitsFile(path).uncounted("GPU-2")) == (5 << 30, 0)
    # a session that began with an earlier release
    os.truncate(path, ctypes.sizeof(layout.SecondLimitsRecord))
    earlier, window = LimitsFile(path), Window(100, 0, 100, 0, 50)
    earlier.charge({"GPU-1": 5 << 30})
    assert earlier.uncounted("GPU-1") == 0
    assert earlier.put_off({"GPU-1": window}, now_ns=0)
    assert earlier.fallback("GPU-1") == window


def test_the_sequence_is_odd_as_long_as_a_change_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits"
    file = LimitsFile.create(path, [HALF, WHOLE])
    before = read(path).sequence
    met: list[int] = []
    fill = layout.fill

    def watched(record: layout.LimitRecord, limit: Limit) -> None:
        met.append(read(path).sequence)
        fill(record, limit)
        met.append(read(path).sequence)

    monkeypatch.setattr(layout, "fill", watched)
    file.change([HALF, WHOLE])
    assert before % 2 == 0
    assert met == [before + 1] * 4
    assert read(path).sequence == before + 2


def test_changes_by_several_threads_come_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LimitsFile.create(tmp_path / "limits", [HALF])
    inside = threading.Event()
    fill = layout.fill

    def slow(record: layout.LimitRecord, limit: Limit) -> None:
        assert not inside.is_set()
        inside.set()
        time.sleep(0.01)
        fill(record, limit)
        inside.clear()

    monkeypatch.setattr(layout, "fill", slow)
    threads = [threading.Thread(target=file.change, args=([HALF],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(tmp_path / "limits").sequence == 8


def test_a_change_that_a_killed_agent_left_half_done_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    LimitsFile.create(path, [HALF])
    spoil(path, sequence=7)
    LimitsFile(path).change([HALF])
    assert read(path).sequence == 8


def test_limits_of_another_version_are_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    LimitsFile.create(path, [HALF])
    spoil(path, version=2)
    with pytest.raises(UnavailableError, match="version 2"):
        LimitsFile(path)
    with pytest.raises(UnavailableError, match="No such file"):
        LimitsFile(tmp_path / "nowhere")


def test_an_account_starts_empty_and_every_user_may_write_it(tmp_path: Path) -> None:
    path = tmp_path / "account/account"
    old = os.umask(0o077)
    try:
        share_files.create_account(path, 2)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o666
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert path.stat().st_size == layout.ACCOUNT_BYTES
    assert share_files.read_account(path) == [Total(), Total()]


def test_totals_are_read_without_the_marks_of_who_changed_them(tmp_path: Path) -> None:
    path = tmp_path / "account"
    share_files.create_account(path, 1)
    head = layout.AccountHead.from_buffer_copy(path.read_bytes())
    total = head.gpu[0]
    total.used, total.launches, total.busy_ns, total.wanted_ns, total.debt_ns = 5 | 3 << 44 | 9 << 54, 7, 11, 13, -17
    total.owed_ns, total.opens_ns, total.settled_ns, total.forgotten_ns = 19, 23, -29, -31
    with path.open("r+b") as file:
        file.write(bytes(head))
    balance = {"owed_ns": 19, "opens_ns": 23, "settled_ns": -29, "forgotten_ns": -31}
    assert share_files.read_account(path) == [Total(5, 7, 11, 13, -17, **balance)]


def test_an_account_that_its_container_has_spoilt_tells_nothing_and_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "account"
    share_files.create_account(path, 1)
    os.truncate(path, 100)
    assert share_files.read_account(path) == []
    path.write_bytes(b"\xff" * layout.ACCOUNT_BYTES)
    assert share_files.read_account(path) == []
    path.unlink()
    assert share_files.read_account(path) == []
    path.symlink_to("/etc/passwd")
    assert share_files.read_account(path) == []
    path.unlink()
    os.mkfifo(path)
    assert share_files.read_account(path) == []


def write_log(path: Path, number: int, *intervals: tuple[int, ...]) -> None:
    """Write intervals of a GPU into an account, as the library does."""
    log = layout.LogRecord(begun=len(intervals))
    for place, interval in enumerate(intervals):
        log.interval[place] = layout.IntervalRecord(*interval)
    with path.open("r+b") as file:
        file.seek(layout.LOGS_AT + number * ctypes.sizeof(log))
        file.write(bytes(log))


def test_intervals_are_those_of_their_gpu_and_none_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "account"
    share_files.create_account(path, 2)
    write_log(path, 1, (1, 10, 20, 9, 3), (0, 1, 2, 3, 4), (2, 1, 2, 1, 0), (3, 1, 2, 1, layout.SLOTS + 1))
    assert layout.intervals_of(share_files.read_log(path, 1)) == [Interval(1, 10, 20, 9, 3)]
    assert layout.intervals_of(share_files.read_log(path, 0)) == []


def test_an_account_of_the_first_kind_or_a_spoilt_one_has_no_intervals(tmp_path: Path) -> None:
    path = tmp_path / "account"
    assert layout.intervals_of(share_files.read_log(path, 0)) == []
    share_files.create_account(path, 1)
    os.truncate(path, layout.LOGS_AT)
    assert share_files.read_account(path) == [Total()]
    assert layout.intervals_of(share_files.read_log(path, 0)) == []


def test_what_was_lost_adds_up_in_the_limits_and_a_file_without_its_place_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    file = LimitsFile.create(path, [HALF, WHOLE])
    file.settle("GPU-2", 7)
    file.settle("GPU-2", -9)
    assert list(read(path).lost_ns[:2]) == [0, -2]
    os.truncate(path, ctypes.sizeof(layout.ThirdLimitsRecord))
    before = path.read_bytes()
    LimitsFile(path).settle("GPU-1", 7)
    assert path.read_bytes() == before
    assert LimitsFile(path).lost("GPU-1") == 0


def test_what_is_forgotten_is_a_sum_and_earlier_files_have_no_place_for_it(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    file = LimitsFile.create(path, [HALF, WHOLE])
    file.forget("GPU-2", 7)
    file.forget("GPU-2", -9)
    assert (file.forgotten("GPU-1"), file.forgotten("GPU-2"), file.lost("GPU-2")) == (0, -2, 0)
    os.truncate(path, ctypes.sizeof(layout.FourthLimitsRecord))
    before = path.read_bytes()
    LimitsFile(path).forget("GPU-1", 7)
    assert path.read_bytes() == before
    assert LimitsFile(path).forgotten("GPU-1") == 0
