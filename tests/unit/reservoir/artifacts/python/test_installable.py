"""What pip refuses to install of a wheel, or installs in a wrong place, and what it takes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from reservoir.artifacts.python import core_metadata
from tests.unit.reservoir.parts import wheel

INFO, DATA = "demo-1.0.dist-info", "demo-1.0.data"
RECORD, SCRIPTS = f"{INFO}/RECORD", f"{INFO}/entry_points.txt"


def read(folder: Path, members: dict[str, str | bytes]) -> None:
    """Look at the wheel of a module with more members, or others."""
    path = wheel(folder)
    with zipfile.ZipFile(path) as made:
        files: dict[str, str | bytes] = {name: made.read(name) for name in made.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (files | members).items():
            archive.writestr(name, content)
    core_metadata.read_named(path, path.name)
    core_metadata.require_installable(path, path.name)


def script(text: str) -> dict[str, str | bytes]:
    return {SCRIPTS: f"[console_scripts]\n{text}\n"}


@pytest.mark.parametrize(
    "members",
    [
        {RECORD: "demo.py\n"},
        {RECORD: "demo.py,,,more\nabsent.py,sha256=AAAA,1\n"},
        {"other.data/": ""},
        {"demo/other.data/x": ""},
        {"Demo-1.0.0.data/scripts/x": ""},
        {
            f"{DATA}/purelib/demo.py": "",
            f"{DATA}/scripts/deeper/x": "",
            f"{DATA}/headers/x.h": "",
            f"{DATA}/data/x": "",
        },
        {"x": "", "x/": ""},
        {"é" * 127: ""},
        script(""),
        script("demo = demo:main"),
        script("demo=demo.deeper:Main.run [fast, more]  # a comment"),
        script("deeper/demo = demo:main"),
        {SCRIPTS: "above = \n# a comment\n[gui_scripts]\ndemo = demo:main\n[demo.plugins]\nplain = demo\nnone =\n"},
        {SCRIPTS: "", f"{DATA}/scripts/demo": ""},
    ],
)
def test_what_pip_takes(tmp_path: Path, members: dict[str, str | bytes]) -> None:
    read(tmp_path, members)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({RECORD: b"d\xe9mo.py,,\n"}, "its RECORD cannot be read: 'utf-8' codec"),
        ({RECORD: f"{'x' * 200_000},,\n"}, "its RECORD cannot be read: field larger"),
        ({RECORD: "demo.py,,\n\nx.py,,\n"}, "its RECORD has an empty line: line 2"),
        ({f"{DATA}": ""}, f"for no place of an installation: {DATA}"),
        ({"other.data": ""}, "for the installation of another wheel: other.data"),
        ({"demo-2.0.data/purelib/x.py": ""}, "for the installation of another wheel: demo-2.0.data/purelib/x.py"),
        ({"demo.data/data/x": ""}, "for the installation of another wheel: demo.data/data/x"),
        ({"x": "", "x/y.py": ""}, "a file where a folder is: x"),
        ({"x/y.py": "", f"{DATA}/platlib/x": ""}, "a file where a folder is: x"),
        ({f"{DATA}/data/bin": ""}, "a file where a folder is: bin"),
        (script("x = demo:main") | {f"{DATA}/scripts/x/y": ""}, "a file where a folder is: bin/x"),
        ({".": ""}, "a file where a folder is: lib/modules"),
        ({"é" * 128: ""}, "a name of more than 255 bytes"),
        (script("demo"), "a line that is no entry point: 'demo'"),
        ({SCRIPTS: "[demo.plugins]\nplain\n"}, "a line that is no entry point: 'plain'"),
        ({SCRIPTS: b"[console_scripts]\nd\xe9mo = demo:main\n"}, "its entry_points.txt is not in UTF-8"),
        *((script(f"demo = {target}"), "a script without a target")
          for target in ("", "demo", "demo:", ":main", "de-mo:main", "demo:main:x", "demo:main []", "demo:main [x")),
        ({SCRIPTS: "[gui_scripts]\ndemo =\n"}, "a script without a target"),
        *((script(f"{name} = demo:main"), "a script of no name that a script can have")
          for name in ("", ".", "../x", "x/../../y", "/tmp/x", "two words")),
    ],
)  # fmt: skip
def test_what_pip_does_not_install_as_it_says(tmp_path: Path, members: dict[str, str | bytes], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(tmp_path, members)
