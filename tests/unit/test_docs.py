"""The pages name what exists: every file, function, command, target, test and link in them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from appliance.cli.app import root
from appliance.site.model import Node, Site
from reservoir.manifest.model import Manifest

ROOT = Path(__file__).parents[2]
ADR = ROOT / "docs" / "adr"
DECISIONS = sorted(ADR.glob("[0-9]*.md"))
FRAGMENTS = sorted((ROOT / "changelog.d").glob("*.md"))
PAGES = sorted(
    [ROOT / "README.md", ROOT / "tests/fakes/cuda/README.md"]
    + [path for pattern in ("docs/**/*.md", "roles/*/README.md") for path in ROOT.glob(pattern)]
)
FOLDERS = (
    *(
        "api",
        "appliance",
        "common",
        "reservoir",
        "docs",
        "inventory",
        "molecule",
        "playbooks",
        "roles",
        "tests",
        "tools",
    ),
    *("changelog.d", ".ci"),
)
PLACEHOLDERS = re.compile(r"NAME|ISSUE|[<>…{}]")


def name(path: Path) -> str:
    """Path of a page below the root, as test id."""
    return path.relative_to(ROOT).as_posix()


def code(page: Path) -> list[str]:
    """Words and phrases that a page sets as code, without its blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]


def lines(page: Path) -> Iterator[str]:
    """What a page gives for typing: lines of shell blocks, and phrases that are set as code."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        yield from re.sub(r"\\\n\s*", "", block).splitlines()
    yield from code(page)


def paths(page: Path) -> Iterator[tuple[str, str]]:
    """Paths of the repository that a page sets as code, each with the name that it points to in there, if any."""
    for word in code(page):
        path, _, inside = word.partition(":")
        named = re.fullmatch(r"[\w.*/-]+", path) and path.split("/")[0] in FOLDERS and "/" in path
        if named and not PLACEHOLDERS.search(path):
            yield path, inside


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Names that a module defines at its top, and those of its classes as `Class.name`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@cache
def defined(path: Path) -> frozenset[str]:
    return frozenset(definitions(ast.parse(path.read_text())))


@cache
def mentions() -> dict[str, list[Path]]:
    """Each word in modules of tests that may name a test, and the modules that have it."""
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for word in {*re.findall(r"\btest_\w+", path.read_text())}:
            found.setdefault(word, []).append(path)
    return found


def is_test(name: str) -> bool:
    return any(name in defined(path) for path in mentions().get(name, []))


@cache
def following(group: Any, word: str) -> Any:
    """The command of a name in a group, and the first of all in none; each is made once, as that takes long."""
    return group.get_command(None, word) if group else typer.main.get_command(root)


def command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words of a `penstock` line lead to, and the words behind it."""
    found = following(None, "penstock")
    while hasattr(found, "list_commands"):
        if not words or words[0].startswith("-") or (below := following(found, words[0])) is None:
            break
        found, words = below, words[1:]
    return found, words


def fault(line: str) -> str:
    """What is wrong with a line that calls `penstock`; empty where nothing is."""
    words = re.sub(r"\s*(#|\|{1,2}|&&|;|>).*", "", line).split()[1:]
    if not words or PLACEHOLDERS.search(words[0]):
        return ""
    found, rest = command(words)
    if hasattr(found, "list_commands"):
        return f"no command {' '.join(words)}" if rest and re.fullmatch(r"[a-z-]+", rest[0]) else ""
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.split("=")[0] for word in rest if re.match(r"--?[a-z][a-z-]*(=|$)", word)}
    unknown = given - options - {"--help"}
    return f"{words[0]} has no {', '.join(sorted(unknown))}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_functions_that_a_page_names_exist(page: Path) -> None:
    missing = []
    for path, inside in paths(page):
        found = list(ROOT.glob(path.rstrip("/")))
        if not found:
            missing.append(path)
        if inside and found and found[0].suffix == ".py" and inside not in defined(found[0]):
            missing.append(f"{path}:{inside}")
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    called = [line.strip() for line in lines(page) if re.match(r"\s*penstock\s", line)]
    assert not [f"{line}: {reason}" for line in called if (reason := fault(line))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_modules_and_tests_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    missing = []
    for line in lines(page):
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            missing += [word for word in words[1:] if re.fullmatch(r"[a-z0-9-]+", word) and word not in targets]
        if words[:2] == ["python", "-m"] and find_spec(words[2]) is None:
            missing.append(words[2])
        if re.fullmatch(r"test_\w+", line) and not is_test(line):
            missing.append(line)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        if "://" in target or (linked.exists() and (not anchor or anchor in anchors(linked))):
            continue
        missing.append(target)
    assert not missing


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_architecture_names_every_import_contract_and_no_other() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    text = " ".join((ROOT / "docs/architecture.md").read_text().split())
    assert set(re.findall(r"contract “([^”]+)”", text)) == {contract["name"] for contract in contracts}


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_a_decision_has_status_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text()
    assert re.match(rf"# {int(page.name[:4])}\. .+\n\nStatus: (accepted|replaced by \d+), \d{{4}}-\d\d-\d\d", text)
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [part.partition("\n")[0] for part in parts] == ["Context", "Decision", "Consequences"]
    assert all(part.partition("\n")[2].strip() for part in parts)


def test_the_index_lists_every_decision_once_by_its_title() -> None:
    listed = re.findall(r"^- \[(\d+\. .+?)\]\((\S+\.md)\)", (ADR / "README.md").read_text(), flags=re.MULTILINE)
    titles = {page.name: page.read_text().partition("\n")[0].removeprefix("# ") for page in DECISIONS}
    assert sorted(listed) == sorted((title, file) for file, title in titles.items())


def keys_of_table(heading: str) -> set[str]:
    """Keys in the table below a heading of the page on installing; `.key` belongs to what the key before belongs to."""
    section = (ROOT / "docs/install.md").read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    found: list[str] = []
    for row in section.partition("| key |")[2].partition("\n\n")[0].splitlines()[2:]:
        for key in re.findall(r"`([^`]+)`", row.split("|")[1]):
            found.append(found[-1].rpartition(".")[0] + key if key.startswith(".") else key)
    return {key.replace("[]", "") for key in found}


def fields(model: type[BaseModel]) -> set[str]:
    """Keys that a document of a model may have."""
    return {field.alias or name for name, field in model.model_fields.items()}


def test_the_page_on_installing_names_every_key_of_the_manifest_and_no_other() -> None:
    assert keys_of_table("### The manifest") == fields(Manifest)


def test_the_page_on_installing_names_every_key_of_a_site_and_no_other() -> None:
    nodes = {f"nodes.{key}" for key in fields(Node)}
    assert keys_of_table("## 3. Describe the site") == fields(Site) - {"nodes"} | nodes


def test_recipes_are_short() -> None:
    recipes = (ROOT / "docs/developing.md").read_text().partition("## Recipes")[2]
    assert all(len(recipe.strip().splitlines()) <= 12 for recipe in recipes.split("### ")[1:]), "ten lines and a title"


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=name)
def test_a_fragment_of_the_changelog_is_one_change(fragment: Path) -> None:
    assert re.fullmatch(r"\d+-[a-z0-9-]+\.(feature|bugfix|doc|removal|misc)\.md", fragment.name)
    text = re.sub(r"`[^`]*`", "code", fragment.read_text()).strip()
    assert text.endswith(".")
    assert len(re.findall(r"\.(?=\s|$)", text)) <= 2, "one or two sentences"
