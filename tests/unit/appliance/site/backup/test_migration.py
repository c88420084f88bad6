"""When a deploy takes a backup first: by the steps of the schema in the wheel that it installs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from appliance.site.backup.migration import migrates, newest_step


def test_the_newest_step_is_that_of_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "penstock.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in ("0024_protocols.py", "0025_more.py", "__init__.py"):
            packed.writestr(f"api/migrations/versions/{name}", "")
        packed.writestr("api/migrations/versions/old/0099_other.py", "")
    assert newest_step(wheel) == "0025"


@pytest.mark.parametrize(
    ("deploys", "expected"),
    [
        ([], False),
        ([{"ok": False, "schema": "0024"}], False),
        ([{"ok": True, "schema": "0025"}], False),
        ([{"ok": True, "schema": "0024"}], True),
        ([{"ok": False, "schema": "0025"}, {"ok": True, "schema": "0024"}], True),
        ([{"ok": True}], True),
    ],
)
def test_a_deploy_migrates_what_the_last_good_one_left_at_another_step(
    deploys: list[dict[str, object]], expected: bool
) -> None:
    assert migrates("0025", deploys) is expected
