"""The kit for a real card, packed and run on the fake one by a Python that has nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cuda import mps_control
from tests.fakes.cuda.clients import Bench, build_client
from tools import gpu_check_kit

TORCH = """
import time

class Anything:
    def __getattr__(self, name):
        return self

    def __call__(self, *arguments, **named):
        time.sleep(0.0001)
        return self

    def __sub__(self, other):
        return self

def __getattr__(name):
    return Anything()
"""
"""A PyTorch that computes nothing, and takes some time for it."""
PYTHON = Path(sys.executable).resolve()
"""The interpreter outside of our environment, which has none of our packages."""
EXACT = ("kernel: ", "driver: ", "NVML", "memory: shown", "memory: after", "memory: resized", "random", "kind")
"""Checks whose outcome does not depend on how busy this computer is."""


@pytest.fixture(scope="module")
def kit(bench: Bench, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked archive."""
    folder = tmp_path_factory.mktemp("kit")
    archive = gpu_check_kit.pack(folder, [release, bench.shim, build_client(folder)])
    assert archive.stat().st_size < 20_000_000
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / gpu_check_kit.TOP


def machine(bench: Bench, folder: Path) -> dict[str, str]:
    """The environment of a machine with one fake GPU."""
    state = {"FAKE_GPU_STATE": str(folder / "state"), "FAKE_GPU_CUDA": "13050", "FAKE_GPU_CONTEXT_MIB": "300"}
    return {"LD_LIBRARY_PATH": str(bench.library), "FAKE_GPU_COUNT": "1", **state}


def command(kit: Path, folder: Path, *options: str) -> list[str]:
    return [str(PYTHON), str(kit / "check.py"), "--quick", "--output", str(folder / "result"), *options]


def judge(
    kit: Path, folder: Path, environment: dict[str, str], only: Sequence[str], *options: str
) -> tuple[int, dict[str, Any]]:
    """Run the kit; returns its exit code and what it found of each check."""
    given = {"PATH": os.environ["PATH"], **environment}
    asked = [*command(kit, folder, "--only", ",".join(only)), *options]
    result = subprocess.run(asked, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert (folder / "result/result.json").is_file(), result.stderr
    document = json.loads((folder / "result/result.json").read_text())
    return result.returncode, {check["check"]: check for check in document["checks"]}


def test_what_does_not_depend_on_time_is_within_its_tolerance_on_the_fake_card(
    bench: Bench, kit: Path, tmp_path: Path
) -> None:
    code, found = judge(kit, tmp_path, machine(bench, tmp_path), EXACT)
    outside = {name: check for name, check in found.items() if check["state"] == "outside"}
    assert (code, outside) == (0, {})
    unjudged = {name: check["why"] for name, check in found.items() if check["state"] == "not judged"}
    assert unjudged["kind driver"] == "driver 550.54.15 is older than 615"
    assert unjudged["kind mig"] == "this card cannot be cut"
    page = (tmp_path / "result/result.html").read_text()
    assert "charged for a context" in page
    assert "this card cannot be cut" in page


def test_a_library_that_does_nothing_is_found_out(bench: Bench, kit: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "libnothing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", nothing], check=True)
    only = ("lead into", "NVML: the share", "memory: what", "memory: resized", "time: resized")
    code, found = judge(kit, tmp_path, machine(bench, tmp_path), only, "--library", str(nothing))
    assert code == 1
    states = {name: check["state"] for name, check in found.items()}
    if os.geteuid() != 0:
        states.pop("NVML: the share inside of a container")
    # on a computer that is very busy nothing ends in a second, and that is no pass either
    assert states.pop("time: resized") != "within"
    assert set(states.values()) == {"outside"}, states
    # it was judged, and missed
    assert not any(check["error"] for check in found.values()), found


def test_an_account_that_forgets_a_kind_of_memory_is_found_out(bench: Bench, kit: Path, tmp_path: Path) -> None:
    source = tmp_path / "shim"
    shutil.copytree(gpu_check_kit.ROOT / "appliance/gpu/shim", source)
    memory, kept = source / "memory.c", "psg_give(reservation->gpu, reservation->bytes - real);"
    assert kept in memory.read_text()
    memory.write_text(memory.read_text().replace(kept, "psg_give(reservation->gpu, reservation->bytes);"))
    build = ["make", "-s", "-C", str(source), f"PYTHON={sys.executable}", f"OUT={tmp_path}", "test"]
    subprocess.run(build, check=True)
    forgetful = str(tmp_path / "libpenstock-gpu-test.so")
    code, found = judge(kit, tmp_path, machine(bench, tmp_path), ["random programs"], "--library", forgetful)
    figures = {figure["name"]: figure for figure in found["memory: random programs"]["figures"]}
    assert (code, figures["NVML beyond the account"]["state"]) == (1, "outside"), figures
    assert figures["failed otherwise"]["got"] == 0, figures


@pytest.mark.skipif(os.geteuid() != 0, reason="the kit starts a daemon of MPS as root alone")
def test_mps_is_judged_where_the_machine_has_it(bench: Bench, kit: Path, tmp_path: Path) -> None:
    program = mps_control.install(tmp_path / "bin")
    given = machine(bench, tmp_path) | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    code, found = judge(kit, tmp_path, given, ["kind mps"])
    states = {name: check["state"] for name, check in found.items()}
    # two programs compute for half a second: on a busy computer that says little
    states.pop("kind mps: parts of the cores")
    errors = {name: check["error"] for name, check in found.items() if check["error"]}
    assert (set(states.values()), len(states), errors) == ({"within"}, 4, {}), found
    figures = {figure["name"]: figure["got"] for check in found.values() for figure in check["figures"]}
    assert figures["a program that begins without a daemon gets more than its limit"] == "yes"
    assert (figures["a client beside one that was not"], figures["its server is then"]) == ("fails", "FAULT")
    assert code in (0, 1)


def test_a_training_is_compared_with_itself_in_rounds_where_there_is_pytorch(
    bench: Bench, kit: Path, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    given = machine(bench, tmp_path) | {"PYTHONPATH": str(tmp_path)}
    _, found = judge(kit, tmp_path, given, ["PyTorch: overhead"])
    check = found["PyTorch: overhead"]
    assert check["error"] == ""
    figures = {figure["name"]: figure for figure in check["figures"]}
    assert list(figures) == ["without the library", "with it", "slower with it", "noise"]
    assert 10 < figures["without the library"]["got"] < 10_000
    assert (figures["slower with it"]["wanted"], figures["slower with it"]["bound"]) == (3, "most")
    assert (
        judge(kit, tmp_path, machine(bench, tmp_path), ["PyTorch"])[1]["PyTorch: full"]["why"]
        == "this Python has no torch"
    )


def test_a_card_that_is_cut_is_judged_by_its_slices_alone(bench: Bench, kit: Path, tmp_path: Path) -> None:
    given = machine(bench, tmp_path) | {"FAKE_GPU_MIG": "0:"}
    code, found = judge(kit, tmp_path, given, ["kernel: ", "memory: ", "kind mig"])
    assert code == 0
    assert found["kernel: locks of open files"]["state"] == "within"
    assert "MIG is on" in found["memory: full"]["why"]
    assert found["kind mig"]["why"] == "MIG is on, but nobody has cut the card"


def test_shares_are_figures_with_what_was_expected(bench: Bench, kit: Path, tmp_path: Path) -> None:
    _, found = judge(kit, tmp_path, machine(bench, tmp_path), ["row: requests", "row: graphs", "processes of a tenant"])
    assert found["row: graphs that are never waited for"]["why"] == "quick: work is longer than it was watched"
    check = found["time: two processes of a tenant"]
    parts = {figure["name"]: figure for figure in check["figures"]}
    wanted = {name: (part["wanted"], part["tolerance"]) for name, part in parts.items()}
    assert check["why"] or wanted == {"two processes of 30 %": (30, 3), "one of 70 %": (70, 3)}
    assert all(part["got"] > 1 for part in parts.values())


def test_nothing_is_left_where_the_kit_is_killed(bench: Bench, kit: Path, tmp_path: Path) -> None:
    asked = command(kit, tmp_path, "--only", "processes of a tenant")
    given = {"PATH": os.environ["PATH"], **machine(bench, tmp_path)}
    running = subprocess.Popen(asked, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begun = _until(lambda: _programs(tmp_path))
    running.kill()
    running.wait()
    assert begun
    assert _until(lambda: not _programs(tmp_path))


def test_a_machine_without_a_driver_is_told_what_is_missing(kit: Path, tmp_path: Path) -> None:
    given = {"PATH": os.environ["PATH"]}
    result = subprocess.run(command(kit, tmp_path), env=given, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: there is no NVIDIA driver here: ")
    assert "Hint: " in result.stderr


def test_a_run_that_is_stopped_ends_its_programs(bench: Bench, kit: Path, tmp_path: Path) -> None:
    asked = command(kit, tmp_path, "--only", "processes of a tenant")
    given = {"PATH": os.environ["PATH"], **machine(bench, tmp_path)}
    running = subprocess.Popen(asked, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert _until(lambda: _programs(tmp_path))
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors[:14]) == (2, "error: stopped")
    assert not _programs(tmp_path)


def _programs(folder: Path) -> list[str]:
    """Programs of the kit that run on the machine of a folder."""
    found, state = [], f"FAKE_GPU_STATE={folder / 'state'}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment, said = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue
        if state in environment.split(b"\0") and b"tests.gpu.program" in said:
            found.append(process.name)
    return found


def _until(holds: Any) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False
