"""The rules of the house: the import contracts of pyproject.toml, and what an import graph does not see."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "reservoir", "appliance", "api")
# no modules: the installer runs by itself where nothing is installed yet, the hook where the library's wheel is built
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.parent.name not in ("installer", "shim")
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
TEXT_SUFFIXES = {".py", ".sh", ".yml", ".yaml", ".md", ".j2", ".toml", ".cfg", ".json", ".html", ".js", ".css", ".c"}


def name(path: Path) -> str:
    """Path of a module below the root, as test id."""
    return path.relative_to(ROOT).as_posix()


def test_the_import_contracts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(cache_dir=None) == 0


def pure_modules() -> list[Path]:
    """The modules of the contract for pure ones."""
    [contract] = [contract for contract in CONTRACTS if contract["name"] == "pure modules do no I/O"]
    places = [ROOT / module.replace(".", "/") for module in contract["source_modules"]]
    return sorted(
        path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    )


@pytest.mark.parametrize("path", pure_modules(), ids=name)
def test_pure_modules_take_of_pathlib_what_touches_no_disk(path: Path) -> None:
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    taken = {f"{getattr(node, 'module', '')}.{alias.name}" for node in imported for alias in node.names}
    assert {name for name in taken if "pathlib" in name} <= {"pathlib.PurePath", "pathlib.PurePosixPath"}


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "settings.py"], ids=name)
def test_only_settings_read_the_environment(path: Path) -> None:
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if _reads_environment(node)]


@pytest.mark.parametrize("path", [p for p in MODULES if "cli" not in p.parts and p.name != "__main__.py"], ids=name)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not {"print", "sys.exit", "exit", "os._exit"} & set(calls)


def test_no_host_name_of_a_package_registry_stands_in_the_project() -> None:
    registries = ("debian org", "pypi org", "pythonhosted org", "npmjs org", "npmjs com", "docker io/", "ubuntu com")
    domains = [words.replace(" ", ".") for words in registries]
    skipped = {".git", ".venv", "build", "dist", "node_modules", "vendor"}
    found = [
        f"{name(path)}: {domain}"
        for path in ROOT.rglob("*")
        if path.suffix in TEXT_SUFFIXES and not skipped & set(path.relative_to(ROOT).parts)
        for domain in domains
        if domain in path.read_text(errors="replace")
    ]
    assert not found


def test_every_change_has_a_news_fragment_and_every_decision_a_number() -> None:
    assert list((ROOT / "changelog.d").glob("*.*.md"))
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))]
    assert numbers == [f"{index:04}" for index in range(1, len(numbers) + 1)]


def _reads_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
