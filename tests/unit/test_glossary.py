"""The words of `docs/glossary.md`: what they replaced does not come back; docstrings of modules begin with nouns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tree import ROOT, files

PRODUCT = ("api", "appliance", "common", "reservoir", "tools")

REPLACED = {
    "blame": "end reason",
    "cube": "argument set",
    "cubes": "argument sets",
    "cure": "hint",
    "denial": "denied system call",
    "denials": "denied system calls",
    "door": "port forwarding",
    "doors": "port forwarding",
    "gauge": "GPU readings",
    "ghost": "orphaned container",
    "ghosts": "orphaned containers",
    "gpu_grant": "GPU share",
    "hopeless": "infeasible",
    "kept_for": "reserved for",
    "lane": "queue",
    "lanes": "queues",
    "promised": "nominated",
    "rooms": "pure modules, or how many containers fit",
    "upkeep": "maintenance, or lifecycle",
    "use_path": "metrics path",
    "verdicts": "feasibility",
}
"""Words that must not come back, in code and in documents, and what is said instead."""

STAYS = {
    ("common/problem.py", "cure"): "a key of what agents of release 0.1.0 answer",
    ("tests/unit/common/test_problem.py", "cure"): "such an answer",
    ("tests/api/migrations/test_words.py", "denials"): "the table's name before the step that is tried there",
    ("docs/adr/0029-errors-travel-as-problem-details.md", "cure"): "the same key",
}
"""Where a word has to stay, and why."""

TEXTS = ".S .c .cfg .conf .css .def .h .html .j2 .js .json .mako .md .py .sh .toml .txt .yaml .yml"
"""Suffixes of texts; a file without one is a text, too."""
HISTORY = Path("api/migrations/versions")
"""Steps of the schema say what tables were called when they were written."""

NO_NOUNS = """
As From How If In Is So To What When Where Whether Which Who Whose Why
Brings Builds Cuts Does Finds Gets Gives Has Installs Judges Keeps Knows Listens Makes Narrows Publishes Puts Reads
Removes Runs Says Sends Serves Shows Solves Starts Submits Takes Tells Writes
Bring Called Cut Do Get Give Install Keep Make Prune Publish Put Read Remove Run Send Serve Show Solve Start
Submit Take Tell Write
"""
"""Openings of sentences and of orders."""


def texts() -> Iterator[Path]:
    """Every text of the project, below its root, but what only tells of the past."""
    for path in files():
        below = path.relative_to(ROOT)
        is_past = below.is_relative_to("changelog.d") or below.is_relative_to(HISTORY)
        if path.suffix in ["", *TEXTS.split()] and path != Path(__file__) and not is_past:
            yield below


def words_of(line: str) -> str:
    """A line in which the words of identifiers stand apart: `GpuShare` and `GPU_SHARE` both have `gpu_share`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", line).lower()


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text, in the glossary without the column of what is not said."""
    for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), start=1):
        is_term = path == Path("docs/glossary.md") and line.startswith("|")
        yield number, line.rsplit("|", 2)[0] if is_term else line


def test_what_the_glossary_has_replaced_does_not_come_back() -> None:
    replaced = re.compile(rf"(?<![a-z])(?:{'|'.join(REPLACED)})(?![a-z])")
    found = [
        f"{path}:{number}: {word}; say {REPLACED[word]}"
        for path in texts()
        for number, line in lines(path)
        for word in replaced.findall(words_of(line))
        if (path.as_posix(), word) not in STAYS
    ]
    assert not found, "\n".join(found)


def test_a_word_stays_only_where_it_stands() -> None:
    assert not [f"{path}: {word}" for path, word in STAYS if word not in words_of((ROOT / path).read_text())]


def test_every_docstring_of_a_module_begins_with_a_noun() -> None:
    docstrings = {
        path.relative_to(ROOT): ast.get_docstring(ast.parse(path.read_text())) or ""
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    opening = re.compile(r"\W*(\w+)")
    found = [
        f"{path}: {text.splitlines()[0]}"
        for path, text in docstrings.items()
        if (first := opening.match(text)) and first[1] in NO_NOUNS.split()
    ]
    assert not found, "\n".join(found)
