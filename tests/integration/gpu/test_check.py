"""The script for real GPUs, on the fake one: it passes with the shim, fails without, and refuses without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cuda.clients import ROOT, Bench, gpu_uuid
from tests.gpu import check as script

TIMED = {"divided", "undisturbed"}
"""Checks that take a computer with nothing else to do."""


def check(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script for a few seconds."""
    command = [sys.executable, "-m", "tests.gpu.check", "--seconds", "2"]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120, check=False)


def results(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The verdict of each check, by its name."""
    return {line["check"]: line for line in map(json.loads, result.stdout.splitlines())}


def machine(bench: Bench, folder: Path) -> dict[str, str]:
    """The environment of a machine with one fake GPU."""
    state = {"FAKE_GPU_STATE": str(folder / "state"), "FAKE_GPU_CUDA": "13050", "FAKE_GPU_CONTEXT_MIB": "300"}
    return {"LD_LIBRARY_PATH": str(bench.library), "FAKE_GPU_COUNT": "1", **state}


def test_every_check_passes_on_the_fake_gpu(bench: Bench, tmp_path: Path) -> None:
    found = results(check({**machine(bench, tmp_path), "PENSTOCK_SHIM": str(bench.shim)}))
    assert set(found) == {"shown", "filled", "resolved", "killed", "divided", "undisturbed", "by_driver"}
    assert [name for name, verdict in found.items() if not verdict["ok"] and name not in TIMED] == []
    assert not [name for name in TIMED if "error" in found[name]]
    assert found["by_driver"]["skipped"] == "driver 550.54.15 is older than 615"


def test_a_shim_that_does_nothing_is_found_out(bench: Bench, tmp_path: Path) -> None:
    nothing = tmp_path / "libnothing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", nothing], check=True)
    result = check({**machine(bench, tmp_path), "PENSTOCK_SHIM": str(nothing)})
    assert result.returncode == 1
    failed = {name for name, verdict in results(result).items() if not verdict["ok"]}
    assert {"shown", "filled", "resolved", "divided"} <= failed


def test_the_drivers_limits_are_left_out_where_the_machine_cannot_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "GROUP", tmp_path / "penstock-check")
    monkeypatch.setattr("pynvml.nvmlSystemGetDriverVersion", lambda: "615.43.02")
    site = script.Site(None, "", tmp_path, tmp_path, 1)
    assert script.by_driver(site) == {"ok": True, "skipped": "the machine has no cgroup v2"}


def test_a_program_that_fails_leaves_no_other_one_behind(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[subprocess.Popen[str]] = []

    def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        made.append(begin(environment, *arguments))
        return made[-1]

    begin = script.start
    monkeypatch.setattr(script, "start", start)
    site = script.Site(None, gpu_uuid(0), bench.shim, tmp_path, 1)
    good = {"PATH": os.environ["PATH"], **machine(bench, tmp_path)}
    monkeypatch.setattr(script, "bare", lambda _: good)
    with pytest.raises((RuntimeError, OSError)):
        script.together(site, [good, {**good, "FAKE_GPU_FAULT": "cuInit:1:999"}], 60)
    assert [process.poll() is None for process in made] == [False, False, False]


def test_a_machine_without_a_gpu_is_refused() -> None:
    result = check({})
    assert result.returncode == 2
    assert result.stderr.startswith("error: there is no GPU here: ")
    assert result.stdout == ""
