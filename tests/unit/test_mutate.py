"""Random mutations: what each operator makes of a source, which lines are drawn, and which tests have to catch them."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import mutate
from tools.mutate import draw, mutations, stages

CASES = {
    "a comparison": ("x = a == b\n", "swap_comparison", ["x = (a != b)\n"]),
    "one boundary": ("x = a < b >= c\n", "swap_comparison", ["x = (a <= b >= c)\n", "x = (a < b > c)\n"]),
    "and": ("x = a and b and c\n", "swap_and_or", ["x = (a or b or c)\n"]),
    "or": ("x = (a or\n     b)\n", "swap_and_or", ["x = ((a and b))\n"]),
    "a condition": ("if a > 1:\n    f()\n", "negate", ["if (not (a > 1)):\n    f()\n"]),
    "a filter": ("x = [a for a in b if a]\n", "negate", ["x = [a for a in b if (not (a))]\n"]),
    "a number": ("x = 7\n", "change_constant", ["x = 8\n", "x = (6)\n"]),
    "a truth": ("x = True\n", "change_constant", ["x = False\n"]),
    "beside wide letters": ('x = "äöü", 1\n', "change_constant", ['x = "äöü", 2\n', 'x = "äöü", (0)\n']),
    "a call": ("f(1,\n  2)\n", "remove_statement", ["pass\n"]),
    "an error": ("raise ValueError\n", "remove_statement", ["pass\n"]),
    "what lives on": (
        "a.b = 1\nc[0] = 1\nd = 1\n",
        "remove_statement",
        ["pass\nc[0] = 1\nd = 1\n", "a.b = 1\npass\nd = 1\n"],
    ),
    "a function": ('def f():\n    """F."""\n    g()\n', "return_early", ['def f():\n    """F."""\n    return\n']),
}

UNTOUCHED = {
    "a text": 'x = "one"\n',
    "a number in a text": 'x = f"{1 + a}"\n',
    "a line of a log": "log.info(a)\n",
    "a docstring": '"""It is 1."""\n',
    "a function that is empty already": "def f():\n    return\n",
    "an interface": "class A:\n    def f(self):\n        ...\n",
}


def made(source: str) -> list[tuple[str, str]]:
    return [(one.operator, one.of(source.encode()).decode()) for one in mutations("a.py", source.encode())]


@pytest.mark.parametrize(("source", "operator", "wanted"), CASES.values(), ids=CASES.keys())
def test_each_operator_changes_one_thing(source: str, operator: str, wanted: list[str]) -> None:
    assert [text for name, text in made(source) if name == operator] == wanted


@pytest.mark.parametrize("source", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_for_people_and_what_does_nothing_stays(source: str) -> None:
    assert made(source) == []


def test_every_mutation_is_a_program_that_means_something_else() -> None:
    path = "common/errors.py"
    source = (mutate.ROOT / path).read_bytes()
    found = mutations(path, source)
    assert {one.operator for one in found} >= {"change_constant", "negate", "remove_statement", "return_early"}
    for mutation in found:
        assert ast.dump(ast.parse(mutation.of(source))) != ast.dump(ast.parse(source)), mutation


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a = 1\n")


def test_lines_are_drawn_by_the_seed_and_each_at_most_once(tmp_path: Path) -> None:
    tree(tmp_path, "api/__init__.py", "tests/unit/test_a.py")
    (tmp_path / "api/long.py").write_text("a = 1 == 1\n" * 99)
    drawn = draw(tmp_path, 50, seed=7)
    assert drawn == draw(tmp_path, 50, seed=7) != draw(tmp_path, 50, seed=8)
    assert len({(one.path, one.line) for one in drawn}) == 50
    assert len([one for one in drawn if one.path == "api/long.py"]) >= 49, "a long file has more of them"
    assert len(draw(tmp_path, 200, seed=7)) == 100


def test_the_nearest_tests_come_first_and_then_all_of_the_package(tmp_path: Path) -> None:
    near, far = "tests/api/sessions/test_resizing.py", "tests/api/sessions/test_lists.py"
    real = "tests/integration/test_sessions.py"
    tree(tmp_path, near, far, real, "tests/unit/common/test_files.py", "tests/integration/test_nodes.py")
    found = stages(tmp_path, "api/resources/sessions/resizing.py", integration=True)
    assert found == [[tmp_path / near], [tmp_path / "tests/api"], [tmp_path / real]]
    assert stages(tmp_path, "api/clock.py", integration=False) == [[tmp_path / "tests/api"]]
    common = stages(tmp_path, "common/files.py", integration=False)
    assert common == [
        [tmp_path / "tests/unit/common/test_files.py"],
        [tmp_path / "tests/unit/common", tmp_path / "tests/api"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from api.lists import nodes\n",
        "from api.lists.nodes import a\n",
        "import api.lists.nodes\n",
        "if a:\n    from api.lists import a, nodes\n",
    ],
)
def test_what_imports_the_module_comes_before_the_rest_of_its_package(tmp_path: Path, text: str) -> None:
    tree(tmp_path, "tests/api/test_nodes.py", "tests/api/test_nodes_of_old.py", "tests/api/test_queue.py")
    (tmp_path / "tests/api/test_a.py").write_text(text)
    (tmp_path / "tests/api/test_b.py").write_text("from api.lists.nodes_of import a\nfrom api.lists import queue\n")
    found = stages(tmp_path, "api/lists/nodes.py", integration=False)
    named = [tmp_path / "tests/api/test_nodes.py", tmp_path / "tests/api/test_nodes_of_old.py"]
    assert found == [[tmp_path / "tests/api/test_a.py"], named, [tmp_path / "tests/api"]], "the fewer first"


@pytest.mark.parametrize("outcomes", [["a.py::test"], ["", "a.py::test"], ["", ""]])
def test_a_mutation_is_there_while_its_tests_run_and_until_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: list[str]
) -> None:
    tree(tmp_path, "api/a.py", "tests/api/test_a.py")
    (mutation,) = [one for one in mutations("api/a.py", b"a = 1\n") if one.text == "2"]
    seen = []

    def failing(root: Path, tests: Any, limit_s: float, done: Any) -> str:
        seen.append(((root / "api/a.py").read_text(), limit_s))
        assert list(done) == [root / "tests/api/test_a.py"][: len(seen) - 1], "no test runs twice"
        return outcomes[len(seen) - 1]

    monkeypatch.setattr(mutate, "failing", failing)
    arguments: Any = SimpleNamespace(limit=60.0, integration=False)
    assert mutate.caught_by(tmp_path, mutation, arguments) == outcomes[-1]
    assert seen == [("a = 2\n", 60.0)] * len(outcomes)
    assert (tmp_path / "api/a.py").read_text() == "a = 1\n"


def test_what_was_compiled_of_a_source_is_never_taken_for_another_one(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    for text in ("2", "3", "1"):  # all within one second, and of the same length
        mutate.rewrite(tmp_path / "a.py", f"a = {text}\n".encode())
        said = subprocess.run(
            [sys.executable, "-c", "import a; print(a.a)"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == f"{text}\n"


def played(monkeypatch: pytest.MonkeyPatch, failing: Any) -> None:
    """Let `main` try two mutations of `common` by tests that are played."""
    monkeypatch.setattr(mutate, "failing", failing)
    monkeypatch.setattr(mutate, "copy_tree", lambda root, target: shutil.copytree(root / "common", target / "common"))
    monkeypatch.setattr(mutate, "stages", lambda *_: [[Path("nearest")]])
    monkeypatch.setattr(mutate, "PACKAGES", ("common",))
    monkeypatch.setattr(sys, "argv", ["mutate", "--count", "2"])


def test_what_survives_is_shown_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = ["", "tests/unit/common/test_a.py::test_b", ""]
    played(monkeypatch, lambda *_: outcomes.pop(0))
    assert mutate.main() == 0
    first, difference, *_ = (part for part in capsys.readouterr().out.split("\n\n"))
    assert first.endswith("SURVIVED")
    assert difference.startswith("--- common/")
    assert not outcomes


def test_what_fails_without_the_mutation_has_caught_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def failing(root: Path, tests: Any, limit_s: float, done: Any = ()) -> str:
        seen.append(tests)
        return "tests/unit/api/test_a.py::test_b[c d]"

    played(monkeypatch, failing)
    with pytest.raises(SystemExit, match="fails without any mutation"):
        mutate.main()
    assert seen[0] == [Path("nearest")]
    assert [test.name for test in seen[1]] == ["test_a.py"]
