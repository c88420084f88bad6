"""The library itself: it loads everywhere or is left out without harm, and bears other libraries beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from tests.fakes.cuda.build import headers
from tests.fakes.cuda.clients import GIB, MIB, OUT_OF_MEMORY, WAYS, Bench, Tenant

Make = Callable[..., Tenant]
LIMIT = GIB

FRONT = """
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#undef cuMemAlloc
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUresult (*next)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    FILE *log = fopen(getenv("FRONT_LOG"), "a");
    fprintf(log, "%zu\\n", bytes);
    fclose(log);
    return next(address, bytes);
}
"""
"""A profiler, say: it counts allocations and passes them on to whoever stands behind it."""


PRELOADED = "/usr/lib/penstock/libpenstock-gpu.so"
SHOW = """
#include <stdio.h>
int main(int count, char **arguments)
{
    char line[256];
    FILE *file = count > 1 ? fopen(arguments[1], "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    puts("started");
}
"""
"""Shows a file, and that it has started."""


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_nothing_newer_than_glibc_2_17_is_needed(release: Path) -> None:
    needed = re.findall(r"\(GLIBC_(\d+)\.(\d+)(?:\.\d+)?\)", output("objdump", "-T", release))
    assert needed
    assert max((int(major), int(minor)) for major, minor in needed) <= (2, 17)
    libraries = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", release))
    assert not [library for library in libraries if "cuda" in library or "nvidia" in library]


def test_only_hooks_are_exported(release: Path) -> None:
    names = [line.split()[-1] for line in output("nm", "-D", "--defined-only", release).splitlines()]
    assert {"dlsym", "cuGetProcAddress_v2", "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"} <= set(names)
    assert not [name for name in names if not re.match(r"(cu[A-Z]|nvml[A-Z]|dlsym|dlopen)", name)]


def test_the_release_takes_no_limits_from_the_environment(tenant: Make, release: Path) -> None:
    share = tenant(LIMIT, preload=[release])
    with share.ready() as client:
        assert client.must("total 0").told == (16 * GIB,)


@pytest.mark.parametrize("way", WAYS[:2])
def test_another_interposer_in_front_still_works(tenant: Make, bench: Bench, tmp_path: Path, way: str) -> None:
    front, log = tmp_path / "libfront.so", tmp_path / "log"
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-isystem", headers(), "-x", "c", "-", "-o", front, "-ldl"]
    subprocess.run(command, input=FRONT, text=True, check=True)
    share = tenant(LIMIT, preload=[front, bench.shim], settings={"FRONT_LOG": str(log)})
    with share.ready(way) as client:
        client.must("malloc 0 1000")
        assert client.do(f"malloc 1 {LIMIT}").code == OUT_OF_MEMORY
        assert share.used() == share.machine.used() == 2 * MIB
    if way == "linked":
        assert log.read_text().split() == ["1000", str(LIMIT)]


@pytest.fixture
def preloading(release: Path, tmp_path: Path) -> list[str]:
    """Mounts of a container whose every program gets the shim."""
    entry = tmp_path / "ld.so.preload"
    entry.write_text(f"{PRELOADED}\n")
    return [f"{release}:{PRELOADED}:ro", f"{entry}:/etc/ld.so.preload:ro"]


def run(root: Path, preloading: list[str], *command: str) -> list[str]:
    """What a program says in a container that has nothing but these files, and the preload in place."""
    engine = docker.from_env()
    tag = f"penstock-shim-{root.name}"
    for folder in ("etc", "usr/lib/penstock"):
        (root / folder).mkdir(parents=True)
    archive = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True).stdout
    engine.api.import_image_from_data(archive, repository=tag, tag="test")
    try:
        said = engine.containers.run(
            f"{tag}:test", list(command), remove=True, volumes=preloading, network_mode="none", stderr=True
        )
        return str(said, "utf-8").splitlines()
    finally:
        engine.images.remove(f"{tag}:test", force=True)


def test_a_static_shell_starts_with_the_preload_in_place(preloading: list[str], tmp_path: Path) -> None:
    shell = tmp_path / "static/bin/busybox"
    shell.parent.mkdir(parents=True)
    shutil.copy("/usr/bin/busybox", shell)
    told = subprocess.run(["ldd", shell], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in told.stderr
    said = run(
        tmp_path / "static", preloading, "/bin/busybox", "sh", "-c", "cat /etc/ld.so.preload; /bin/busybox echo started"
    )
    assert said == [PRELOADED, "started"]


def test_a_program_of_another_c_library_starts_with_the_preload_in_place(preloading: list[str], tmp_path: Path) -> None:
    root = tmp_path / "musl"
    for folder in ("bin", "lib"):
        (root / folder).mkdir(parents=True)
    program = root / "bin/show"
    subprocess.run(["musl-gcc", "-x", "c", "-", "-o", program], input=SHOW, text=True, check=True)
    headers = subprocess.run(["readelf", "-l", program], capture_output=True, text=True, check=True).stdout
    loader = re.search(r"interpreter: (/lib/ld-musl-\S+\.so\.1)]", headers)
    assert loader, "it is not linked to musl"
    shutil.copy(Path(loader[1]).resolve(), root / loader[1].lstrip("/"))
    assert run(root, preloading, "/bin/show", "/etc/ld.so.preload") == [PRELOADED, "started"]
