"""The rules of the house: the import contracts of pyproject.toml, and what an import graph does not see."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from importlinter.cli import lint_imports

from tests.tree import ROOT, docstring, files

PACKAGES = ("common", "reservoir", "appliance", "api")
# no modules: the installer runs by itself where nothing is installed yet, the hook where the library's wheel is built
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.parent.name not in ("installer", "shim")
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PURE = "pure modules do no I/O"
PURE_BY_THEMSELVES = "modules that are pure by themselves do no I/O of their own"
TEXT_SUFFIXES = {".py", ".sh", ".yml", ".yaml", ".md", ".j2", ".toml", ".cfg", ".json", ".html", ".js", ".css", ".c"}


def name(path: Path) -> str:
    """Path of a file below the root."""
    return path.relative_to(ROOT).as_posix()


@cache
def nodes(path: Path, word: str, *more: str) -> tuple[ast.AST, ...]:
    """All nodes of a module's syntax tree; none where its text has none of the words."""
    text = path.read_text()
    return tuple(ast.walk(ast.parse(text))) if any(each in text for each in (word, *more)) else ()


def test_the_import_contracts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(cache_dir=None) == 0


def modules_of(contract: str) -> list[Path]:
    """The modules of a contract for pure ones."""
    [found] = [each for each in CONTRACTS if each["name"] == contract]
    places = [ROOT / module.replace(".", "/") for module in found["source_modules"]]
    return sorted(
        path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    )


def test_what_calls_itself_pure_is_held_to_it() -> None:
    said = {path for path in MODULES if re.search(r"\bPure[.:]", docstring(path))}
    assert len(said) > 50
    assert {name(path) for path in said - {*modules_of(PURE), *modules_of(PURE_BY_THEMSELVES)}} == set()


def test_pure_modules_take_of_pathlib_what_touches_no_disk() -> None:
    allowed = {"pathlib.PurePath", "pathlib.PurePosixPath"}
    taken = {
        f"{name(path)}: {getattr(node, 'module', '')}.{alias.name}"
        for path in modules_of(PURE)
        for node in nodes(path, "pathlib")
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {found for found in taken if "pathlib" in found and found.split(": ")[1] not in allowed} == set()


def test_only_settings_read_the_environment() -> None:
    readers = {name(path) for path in MODULES for node in nodes(path, "environ", "getenv") if _reads_environment(node)}
    assert {path for path in readers if not path.endswith("/settings.py")} == set()


def test_only_the_command_line_prints_or_exits() -> None:
    found = {name(path) for path in MODULES for node in nodes(path, "print", "exit") if _prints_or_exits(node)}
    assert {path for path in found if "cli" not in Path(path).parts and not path.endswith("/__main__.py")} == set()


def test_no_host_name_of_a_package_registry_stands_in_the_project() -> None:
    registries = ("debian org", "pypi org", "pythonhosted org", "npmjs org", "npmjs com", "docker io/", "ubuntu com")
    domains = [words.replace(" ", ".") for words in registries]
    found = [
        f"{name(path)}: {domain}"
        for path in files()
        if path.suffix in TEXT_SUFFIXES
        for domain in domains
        if domain in path.read_text(errors="replace")
    ]
    assert not found


def test_all_versions_of_a_release_are_the_same() -> None:
    projects = [ROOT / "pyproject.toml", ROOT / "appliance/gpu/shim/pyproject.toml"]
    versions = {name(path): tomllib.loads(path.read_text())["project"]["version"] for path in projects}
    manifests = [ROOT / f"{part}.yml" for part in ("manifest", "monitoring", "drivers", "slurm")]
    versions |= {name(path): yaml.safe_load(path.read_text())["version"] for path in manifests}
    assert len(set(versions.values())) == 1, versions


def test_every_change_has_a_news_fragment_and_every_decision_a_number() -> None:
    assert list((ROOT / "changelog.d").glob("*.*.md"))
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))]
    assert numbers == [f"{index:04}" for index in range(1, len(numbers) + 1)]


# a program is named by its path, or as the interpreter that runs; in `chroot` the folder is the root of the image
MODULE_RUN = re.compile(
    r"""(?<!`)(?:[/$]python[\d.]*|["']python[\d.]*["']|executable|python \}\})["')]*,?\s+["']?-m\b"""
)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ('[sys.executable, "-m", "pip"]', True),
        ("ExecStart={{ api_venv }}/bin/python -m api serve", True),
        ("[str(folder / 'bin' / 'python'), '-m', 'pip']", True),
        ("{{ edge_python }} -m common.watched", True),
        ("/usr/bin/python3.11 -m venv", True),
        ('[sys.executable, "-P", "-m", "pip"]', False),
        ("{{ api_venv }}/bin/python -I -m api serve", False),
        ("run `python -m api migrate`", False),
    ],
)
def test_a_module_that_is_run_from_any_folder_is_found(words: str, found: bool) -> None:
    assert bool(MODULE_RUN.search(words)) == found


def test_no_module_is_run_with_the_working_directory_first() -> None:
    """What lies in the folder from which somebody starts a program would be imported before Python's own modules."""
    places = (*PACKAGES, "roles", "playbooks", "inventory")
    found = [
        f"{name(path)}: {line.strip()}"
        for path in files()
        if path.relative_to(ROOT).parts[0] in places and path.suffix != ".mo"
        for line in path.read_text(errors="replace").splitlines()
        if MODULE_RUN.search(line) and "chroot " not in line
    ]
    assert not found, "say -I, or -P where the environment counts"


def _prints_or_exits(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "os._exit")


def _reads_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
