"""The library for GPU shares as a file: what it is built of, what it shows, and that it leaves others alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import appliance.gpu

SOURCES = Path(appliance.gpu.__file__).parent / "shim"

CALLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
void *after_us(const char *name) { return dlsym(RTLD_NEXT, name); }
void *anywhere(const char *name) { return dlsym(RTLD_DEFAULT, name); }
int answer(void) { return 1; }
"""
ANSWERS_TOO = "int answer(void) { return 2; }"
PROGRAM = r"""
#include <stdio.h>
void *after_us(const char *name);
void *anywhere(const char *name);
int answer(void);
int main(void)
{
    int (*next)(void) = (int (*)(void))after_us("answer");
    printf("%d %d %d\n", answer(), next ? next() : 0, anywhere("no_such_function") != NULL);
}
"""


def hooks() -> list[tuple[str, str, int, int]]:
    """The hooked symbols with name, version and flags of the question that gives them."""
    found = re.findall(
        r'^(?:HOOK|ALSO)\((\w+), "(\w+)", (\d+), (\d)\)', (SOURCES / "hooks.def").read_text(), re.MULTILINE
    )
    return [(symbol, base, int(since), int(flags)) for symbol, base, since, flags in found]


def test_another_folder_gives_the_same_bytes(release: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder with another name" / "shim"
    shutil.copytree(SOURCES, elsewhere)
    subprocess.run(["make", "-s", "-C", elsewhere, f"PYTHON={sys.executable}", f"OUT={tmp_path}"], check=True)
    assert (tmp_path / release.name).read_bytes() == release.read_bytes()


def test_the_file_names_no_folder_of_its_build(release: Path) -> None:
    assert str(SOURCES).encode() not in release.read_bytes()


def test_exactly_the_hooks_are_exported(release: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", release], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    refused = set(re.findall(r"^REFUSED\((\w+)\)", (SOURCES / "setters.def").read_text(), re.MULTILINE))
    shown = set(re.findall(r"VIEW\((nvml\w+)\)", (SOURCES / "nvml_real.h").read_text()))
    hidden = set(re.findall(r"^HIDDEN\((\w+)\)", (SOURCES / "hidden.def").read_text(), re.MULTILINE))
    assert exported == {symbol for symbol, *_ in hooks()} | refused | shown | hidden | {"dlsym", "dlopen"}


def test_no_function_is_used_that_newer_headers_give_a_newer_name(release: Path) -> None:
    # glibc 2.38 gave the readers of numbers new names
    used = subprocess.run(["nm", "-D", "--undefined-only", release], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\S*(?:strto[a-z]+|scanf)\S*", used) == []


def test_questions_name_versions_that_nvidia_knows() -> None:
    header = next(file for file in files("nvidia-cuda-runtime") or [] if file.name == "cudaTypedefs.h")
    types = set(re.findall(r"PFN_(cu\w+?_v\d+(?:_ptsz)?)\)", Path(str(header.locate())).read_text()))
    # cuGetProcAddress itself has no form per thread in the header; the last one came to replace the first of its name
    spared = {"cuGetProcAddress", "cuGraphInstantiate"}
    unknown = [
        (symbol, since)
        for symbol, base, since, flags in hooks()
        if base not in spared and f"{base}_v{since}{'_ptsz' if flags == 2 else ''}" not in types
    ]
    assert unknown == []


def test_searches_of_other_libraries_begin_where_they_stand(release: Path, tmp_path: Path) -> None:
    for name, text in (("first", CALLER), ("second", ANSWERS_TOO)):
        (tmp_path / f"{name}.c").write_text(text)
        target = tmp_path / f"lib{name}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, tmp_path / f"{name}.c", "-ldl"], check=True)
    (tmp_path / "program.c").write_text(PROGRAM)
    linked = ["-Wl,--no-as-needed", "-lfirst", "-lsecond", f"-Wl,-rpath,{tmp_path}"]
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, tmp_path / "program.c", f"-L{tmp_path}", *linked], check=True)
    for preload in ("", str(release)):
        said = subprocess.run(
            [program], env={**os.environ, "LD_PRELOAD": preload}, capture_output=True, text=True, check=True
        )
        assert (said.stdout, said.stderr) == ("1 2 0\n", "")


def test_a_process_without_limits_opens_nothing_before_cuda(release: Path) -> None:
    # a process that has nothing to do with a GPU runs none of our code at its start
    listed = subprocess.run(["readelf", "-S", "-W", release], capture_output=True, text=True, check=True).stdout
    starts = re.search(r"\.init_array\s+\S+\s+\S+\s+\S+\s+(\w+)", listed)
    assert starts is not None
    assert int(starts[1], 16) == 8, "only the compiler's own start routine"
