"""The table at the end of `make test`."""

from __future__ import annotations

from pathlib import Path

from tools.tiers import Tier, read, table

REPORT = """\
<testsuites><testsuite>
<testcase classname="tests.unit.test_one" name="test_slow[a]" time="12.5" />
<testcase classname="tests.unit.test_one" name="test_fast" time="0.001"><failure>no</failure></testcase>
</testsuite></testsuites>
"""


def test_a_report_gives_the_seconds_of_each_test(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(REPORT)
    assert read(report) == {"tests.unit.test_one::test_slow[a]": 12.5, "tests.unit.test_one::test_fast": 0.001}


def test_the_table_has_every_tier_its_ten_slowest_tests_and_the_sum() -> None:
    tests = {f"test_{number}": float(number) for number in range(12)}
    lines = [" ".join(line.split()) for line in table([Tier("lint", 8.04, True, {}), Tier("unit", 60.0, False, tests)])]
    assert lines[:2] == ["8.0 s lint", "60.0 s 12 tests unit: failed"]
    assert lines[2:-1] == [f"{number}.0 s test_{number}" for number in range(11, 1, -1)]
    assert lines[-1] == "68.0 s together"
