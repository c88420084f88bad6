"""The wheel of the library that holds GPU shares, as the build makes it and as nodes install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from common.errors import ProcessError
from reservoir.artifacts.python import projects, wheels
from reservoir.artifacts.python.projects import WHEEL_TIME
from reservoir.download import indexes
from reservoir.lock.file import read_manifest
from reservoir.manifest.model import MACHINES

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "appliance/gpu/shim"
IN_WHEEL = "penstock_gpu_shim-{version}.data/data/lib/libpenstock-gpu.so"


def build(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return projects.build(source, folder, indexes.machine(), WHEEL_TIME)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library in an environment made as a node makes the agent's."""
    venv = tmp_path_factory.mktemp("node") / "agent"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", venv / "bin/python"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True)
    return venv / "lib/libpenstock-gpu.so"


def test_the_wheel_is_of_the_products_version_and_runs_on_every_target(wheel: Path) -> None:
    manifest = read_manifest(ROOT / "manifest.yml")
    assert wheel.name.startswith(f"penstock_gpu_shim-{manifest.version}-py3-none-manylinux_2_17_")
    assert all(wheels.runs_on(wheel.name, target) for target in manifest.targets)


def test_the_wheel_of_another_architecture_comes_from_the_same_machine(wheel: Path, tmp_path: Path) -> None:
    manifest = read_manifest(ROOT / "manifest.yml")
    other = next(arch for arch in ("arm64", "amd64") if arch != manifest.targets[0].arch)
    made = projects.build(SOURCE, tmp_path, indexes.machine(), WHEEL_TIME, other)
    assert wheels.runs_on(made.name, manifest.targets[0].model_copy(update={"arch": other}))
    assert not wheels.runs_on(wheel.name, manifest.targets[0].model_copy(update={"arch": other}))
    library = Path(ZipFile(made).extract(IN_WHEEL.format(version=manifest.version), tmp_path))
    machine = MACHINES[other]
    program, root = tmp_path / "program", f"/usr/{machine}-linux-gnu"
    words = '#include <stdio.h>\nint main(void) { puts("started"); }\n'
    subprocess.run([f"{machine}-linux-gnu-gcc", "-x", "c", "-", "-o", program], input=words, text=True, check=True)
    command: list[str | Path] = [f"qemu-{machine}-static", "-L", root, "-E", f"LD_PRELOAD={library}", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_the_wheel_holds_the_library_and_no_source(wheel: Path) -> None:
    version = read_manifest(ROOT / "manifest.yml").version
    names = ZipFile(wheel).namelist()
    assert [name for name in names if ".dist-info/" not in name] == [IN_WHEEL.format(version=version)]


def test_the_same_source_gives_the_same_bytes_wherever_it_lies(wheel: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(SOURCE, tmp_path / "elsewhere")
    assert sha256(build(copy, tmp_path / "out").read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


def test_a_change_of_the_source_makes_another_wheel(wheel: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(SOURCE, tmp_path / "changed")
    changed = copy / "limits.c"
    changed.write_text(changed.read_text() + '\n__attribute__((used)) static const char changed[] = "changed";\n')
    assert build(copy, tmp_path / "out").read_bytes() != wheel.read_bytes()


def test_a_source_that_does_not_compile_stops_the_build(tmp_path: Path) -> None:
    copy = shutil.copytree(SOURCE, tmp_path / "broken")
    for source in copy.glob("*.c"):
        source.write_text("this is no program\n")
    with pytest.raises(ProcessError, match=r"unknown type name .this."):
        build(copy, tmp_path / "out")


def test_the_source_compiles_with_the_oldest_headers_that_its_project_admits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_RESOLUTION", "lowest-direct")
    assert build(SOURCE, tmp_path / "out").name.startswith("penstock_gpu_shim-")


def test_the_installed_library_loads_into_any_program_and_says_nothing(installed: Path) -> None:
    words = "import sys; sys.exit('libpenstock-gpu' not in open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-c", words],
        env=os.environ | {"LD_PRELOAD": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_installed_library_names_no_path_of_the_machine_that_built_it(installed: Path) -> None:
    content = installed.read_bytes()
    assert not [place for place in (str(ROOT), "/tmp", "/root", "site-packages") if place.encode() in content]
