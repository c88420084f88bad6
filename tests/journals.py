"""Journals as nodes write them, made from the export format by systemd's own program."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

REMOTE = "/lib/systemd/systemd-journal-remote"
UPLOAD = "/lib/systemd/systemd-journal-upload"
START_S = 1_767_225_600
"""When the first entry was written: 2026-01-01."""
_ONES = {"_BOOT_ID": "a" * 32, "_MACHINE_ID": "b" * 32}


def at(second: int) -> dict[str, str]:
    """Return when an entry was written."""
    return {"__REALTIME_TIMESTAMP": f"{START_S + second}000000", "__MONOTONIC_TIMESTAMP": str(second + 1)}


def exported(entries: Iterable[Mapping[str, str]]) -> Iterable[str]:
    """Yield entries in the export format, one each second."""
    for number, fields in enumerate(entries):
        yield "".join(f"{name}={value}\n" for name, value in (at(number) | _ONES | dict(fields)).items()) + "\n"


def write(file: Path, entries: Iterable[Mapping[str, str]]) -> None:
    """Write a journal."""
    command = [REMOTE, "--split-mode=none", f"--output={file}", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stderr
        for entry in exported(entries):
            process.stdin.write(entry)
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 0, said
