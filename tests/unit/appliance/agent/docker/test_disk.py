"""What containers have written, as it is counted."""

from __future__ import annotations

from pathlib import Path

from appliance.agent.docker import disk


def test_files_count_once_and_those_without_content_are_not_free(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3 << 20))
    (tmp_path / "again").hardlink_to(tmp_path / "big")
    assert disk.used_mib([tmp_path]) == 3
    for number in range(2000):
        (tmp_path / str(number)).symlink_to("nowhere")
    assert disk.used_mib([tmp_path]) == 2003 * disk.FILE_KIB >> 10
