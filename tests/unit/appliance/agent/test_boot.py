"""The boot of a machine: another one after each start, of the kernel or of the first process alone."""

from __future__ import annotations

from pathlib import Path

from appliance.agent.boot import boot


def machine(folder: Path, kernel: str, ticks: int) -> str:
    (folder / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (folder / "1").mkdir(exist_ok=True)
    (folder / "sys/kernel/random/boot_id").write_text(f"{kernel}\n")
    (folder / "1/stat").write_text(f"1 (a) b) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {ticks} 170 3\n")
    return boot(folder)


def test_each_start_has_another(tmp_path: Path) -> None:
    told = machine(tmp_path, "k1", 3)
    assert told == machine(tmp_path, "k1", 3) == "k1-3"
    assert machine(tmp_path, "k2", 3) != told
    assert machine(tmp_path, "k1", 90_000) != told, "a node of a lab, on a kernel that goes on"


def test_this_machine_has_one() -> None:
    assert boot() == boot()
