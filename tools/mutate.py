"""Random mutations of the product, and how many of them the tests catch: `python -m tools.mutate --count 60 --seed 1`.

Lines of all packages are drawn at random, and one thing on each is changed: in a copy of the tree, never in the tree
itself. First the tests run that mirror the module and those that import it, then the rest of its package; with
`--integration` also those real parts that are named like it. What fails has to pass without the mutation. One that no
test fails on has survived, and is shown: a person judges whether it changes anything at all. Texts and the lines of
logs are left alone, for they are people's.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("common", "reservoir", "appliance", "api")
BUILT = ("api/static/vendor", "build/shim")  # what git does not know and tests need
STOP_S = 20.0
FEW = 8  # files of tests that one process is done with before others have started

Change = tuple[ast.expr | ast.stmt, str]

PAIRS = ((ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE))
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutation:
    """One change of a file: other text for the bytes from `start` to `end`."""

    path: str
    line: int
    operator: str
    start: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def swap_comparison(node: ast.AST) -> Iterator[Change]:
    """`==` and `!=`, `is` and `is not`, `in` and `not in`, `<` and `<=`, `>` and `>=` for each other."""
    if isinstance(node, ast.Compare):
        for place, found in enumerate(node.ops):
            if other := SWAPPED.get(type(found)):
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"


def swap_and_or(node: ast.AST) -> Iterator[Change]:
    """`and` and `or` for each other."""
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"


def negate(node: ast.AST) -> Iterator[Change]:
    """The opposite of a condition."""
    tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert) else []
    for test in node.ifs if isinstance(node, ast.comprehension) else tests:
        yield test, f"(not ({ast.unparse(test)}))"


def change_constant(node: ast.AST) -> Iterator[Change]:
    """One more or one less than a number, and the other truth value."""
    match node:
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, str(value + 1)
            yield node, f"({value - 1})"


def remove_statement(node: ast.AST) -> Iterator[Change]:
    """Nothing in place of a call, of a change of something that lives on, or of an error."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) if not ast.unparse(node).startswith("log."):
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield node, "pass"


def return_early(node: ast.AST) -> Iterator[Change]:
    """A function that does nothing."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        # what is decorated begins above its own line
        if (
            body
            and not getattr(body[0], "decorator_list", ())
            and ast.unparse(body[0]) not in ("pass", "...", "return")
        ):
            yield body[0], "return"


OPERATORS = (swap_comparison, swap_and_or, negate, change_constant, remove_statement, return_early)


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Return every mutation of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _nodes(ast.parse(source)):
        for operator in OPERATORS:
            for what, text in operator(node):
                start = starts[what.lineno - 1] + what.col_offset
                end = starts[(what.end_lineno or 0) - 1] + (what.end_col_offset or 0)
                found.append(Mutation(path, what.lineno, operator.__name__, start, end, text))
    return found


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, but for the parts of texts: Python 3.11 does not know where these stand."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _nodes(child)


def draw(root: Path, count: int, seed: int) -> list[Mutation]:
    """Return mutations at random: each line of the packages that has any is as likely as any other."""
    lines: dict[tuple[str, int], list[Mutation]] = {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        for mutation in mutations(str(path.relative_to(root)), path.read_bytes()):
            lines.setdefault((mutation.path, mutation.line), []).append(mutation)
    chance = random.Random(seed)
    return [chance.choice(lines[line]) for line in chance.sample(sorted(lines), min(count, len(lines)))]


def stages(root: Path, path: str, integration: bool) -> list[list[Path]]:
    """Return the tests that can catch a mutation of a file: those of its name and those that import it, then all."""
    package, *folders = Path(path).with_suffix("").parts
    packages = PACKAGES if package == "common" else (package,)  # what all stand on, tests of all can catch
    places = [root / "tests" / tier / name for name in packages for tier in ("unit", "")]
    whole = [place for place in places if place.is_dir()]
    near = {test: _likeness(test.relative_to(root), folders) for place in whole for test in place.rglob("test_*.py")}
    nearest = sorted(test for test, likeness in near.items() if likeness and likeness == max(near.values()))
    importing = sorted(test for test in near.keys() - set(nearest) if _imports(test, [package, *folders]))
    parts = sorted((root / "tests" / "integration").rglob("test_*.py")) if integration else []
    real = [test for test in parts if _likeness(test.relative_to(root), [package, *folders])]
    return [stage for stage in (*sorted((nearest, importing), key=len), whole, real) if stage]


def _likeness(test: Path, names: Sequence[str]) -> int:
    """Return how many parts of a module's own name a test, or a folder that it is in, is named like."""
    own = f"{test.stem.removeprefix('test_')}_"
    return sum(name in test.parts[2:-1] or own.startswith(f"{name}_") for name in names)


def _imports(test: Path, names: Sequence[str]) -> bool:
    """Return whether a test imports a module, or what stands in it, by itself."""
    *parents, own = [name for name in names if name != "__init__"]
    above, whole = ".".join(parents), ".".join([*parents, own])
    forms = rf"from {whole} import |import {whole}\b|from {above} import [^\n]*\b{own}\b"
    return re.search(rf"^\s*({forms})", test.read_text(), re.MULTILINE) is not None


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git knows, or would take up, and what was built for tests."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    for file in [*map(root.joinpath, names), *(file for name in BUILT for file in (root / name).rglob("*"))]:
        if file.is_file():
            copied = target / file.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copied)


def failing(root: Path, tests: Sequence[Path], limit_s: float, but: Sequence[Path] = ()) -> str:
    """Return which of some tests fails, or that it took too long; empty where all is well."""
    workers = "auto" if len(tests) > FEW or any(test.is_dir() for test in tests) else "0"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", workers, *map(str, tests)]
    command += [f"--ignore={test}" for test in but]
    # without compiled ones each run would compile the product and all tests
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            for kind in (signal.SIGINT, signal.SIGKILL):  # the first lets the tests put things away
                with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                    os.killpg(running.pid, kind)
                    running.communicate(timeout=STOP_S)
            return f"time limit of {limit_s:.0f} s"
    if running.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    if running.returncode < 0:
        sys.exit(f"error: somebody ended the tests: signal {-running.returncode}. Hint: start again")
    names = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return names[0] if names else f"pytest exited {running.returncode}"


def caught_by(root: Path, mutation: Mutation, arguments: argparse.Namespace) -> str:
    """Return the test that fails on a mutation, which is there only for that time; empty where it survives."""
    source = (file := root / mutation.path).read_bytes()
    done: list[Path] = []
    rewrite(file, mutation.of(source))
    try:
        for tests in stages(root, mutation.path, arguments.integration):
            if test := failing(root, tests, arguments.limit, done):
                return test
            done += [test for test in tests if test.is_file()]
        return ""
    finally:
        rewrite(file, source)


def rewrite(file: Path, source: bytes) -> None:
    """Write a source, later by whole seconds than what was compiled of it: that is all that Python looks at."""
    at = file.stat().st_mtime + 1
    file.write_bytes(source)
    os.utime(file, (at, at))


def difference(mutation: Mutation, source: bytes) -> str:
    """Return a mutation as a diff."""
    before, after = (text.decode().splitlines() for text in (source, mutation.of(source)))
    return "\n".join(difflib.unified_diff(before, after, mutation.path, mutation.operator, n=2, lineterm=""))


def main() -> int:
    """Draw, try each and tell; returns 1 where fewer were caught than was aimed at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many mutations")
    parser.add_argument("--seed", type=int, default=1, help="the same seed draws the same ones from the same tree")
    parser.add_argument("--aim", type=float, default=0.0, metavar="PERCENT", help="exit 1 where fewer are caught")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="for one run of tests")
    parser.add_argument("--integration", action="store_true", help="with real parts: Docker, and much more time")
    arguments = parser.parse_args()
    drawn = draw(ROOT, arguments.count, arguments.seed)
    caught = 0
    sound: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        root = Path(folder)
        copy_tree(ROOT, root)
        for number, mutation in enumerate(drawn, 1):
            begin = time.monotonic()
            test = caught_by(root, mutation, arguments)
            file, by_name, _ = test.partition("::")
            if by_name and file not in sound:
                if broken := failing(root, [root / file], arguments.limit):
                    sys.exit(f"error: {broken}: fails without any mutation. Hint: mend it first")
                sound.add(file)
            caught += bool(test)
            place, seconds = f"{mutation.path}:{mutation.line}", time.monotonic() - begin
            print(f"{number:3} {mutation.operator:16} {seconds:5.0f} s  {place:55} {test or 'SURVIVED'}", flush=True)
            if not test:
                print(f"\n{difference(mutation, (ROOT / mutation.path).read_bytes())}\n", flush=True)
    score = 100 * caught / max(len(drawn), 1)
    print(f"\ncaught: {caught} of {len(drawn)} ({score:.0f} %)")
    return int(score < arguments.aim)


if __name__ == "__main__":
    sys.exit(main())
