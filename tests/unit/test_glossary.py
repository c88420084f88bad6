"""The words of `docs/glossary.md`: what they replaced does not come back; docstrings of modules begin with nouns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tree import ROOT, docstring, files

PRODUCT = ("api", "appliance", "common", "reservoir", "tools")

GLOSSARY = Path("docs/glossary.md")
EVERYDAY = """
aside check claim cluster containers daemon document domain ending engine epoch free gone group hold host installation
item job kind leaving limits mark model models part partition place pool profile release room runtime scope shape share
site size slice slot soft split task try use verdict volume wait waiting within
"""
"""Words of the column *not* that no expression can judge: everybody needs them in another meaning, too."""

AREAS = {
    "evict": "api appliance common docs reservoir",
    "grant": "api/control api/engine api/resources api/scheduler api/tables appliance/agent/kubernetes "
    "appliance/agent/shares appliance/gpu common",
    "guard": "appliance/agent appliance/gpu",
    "ledger": "appliance",
    "stranger": "api/control api/resources/nodes api/resources/sessions common tests/api/control",
    "take back": "api/control api/resources/sessions api/scheduler api/tables common docs/notes docs/user.md tests/api "
    "tests/lab tests/unit/api",
    "tenant": "api appliance common docs reservoir",
    "usage": "api appliance/cli appliance/client common docs tests/api",
}
"""Folders where a word can mean only what the glossary calls otherwise; elsewhere it has an everyday meaning."""

FORMS = {
    "take back": [f"{word} back" for word in ("take", "takes", "taken", "taking", "took")],
    "borrowed": ["borrowed", "borrows", "borrowing", "borrow"],
}
"""All forms of words that do not just get an ending."""

MORE = {
    "blame": "end reason",
    "gpu_grant": "share",
    "kept_for": "reserved for",
    "rooms": "pure modules, or how many containers fit",
    "use_path": "metrics path",
    "verdicts": "feasibility",
}
"""Forms that must not come back although the glossary does not name them, and what is said instead."""

STAYS = {
    ("common/problem.py", "cure"): "a key of what agents of release 0.1.0 answer",
    ("tests/unit/common/test_problem.py", "cure"): "such an answer",
    ("tests/api/migrations/test_words.py", "denials"): "the table's name before the step that is tried there",
    ("api/endpoints/exposition.py", "gauge"): "Prometheus's own word for a number that goes up and down",
    ("api/resources/health/metrics.py", "gauge"): "the same",
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
        is_term = path == GLOSSARY and line.startswith("|")
        yield number, line.rsplit("|", 2)[0] if is_term else line


def refused() -> dict[str, str]:
    """Each word of the column *not*, and the term of its row."""
    rows = [line.strip("|").split("|") for line in (ROOT / GLOSSARY).read_text().splitlines() if line.startswith("| ")]
    return {word.strip().lower(): row[0].strip() for row in rows for word in row[-1].split(",")}


REPLACED = {word: term for word, term in refused().items() if word not in (*EVERYDAY.split(), "not", "–")} | MORE
EXPRESSIONS = {
    word: "|".join(FORMS[word]) if word in FORMS else word.replace(" ", "[ _]") + "(?:s|ed)?" for word in REPLACED
}
LAST = {
    word: {re.split("[ _]", form)[-1] for form in FORMS.get(word, [word, f"{word}s", f"{word}ed"])} for word in REPLACED
}
"""Words of which one stands in every text with the replaced one, as its last word."""


def faults(path: Path) -> Iterator[str]:
    """Every word in a text that the glossary has replaced, with its line."""
    # most texts have none, as is known at once by the words that they have
    present = set(re.findall("[a-z]+", words_of((ROOT / path).read_text(errors="replace"))))
    there = [word for word in REPLACED if not present.isdisjoint(LAST[word])]
    inside = [word for word in there if any(map(path.is_relative_to, AREAS.get(word, ".").split()))]
    if not inside:
        return
    replaced = re.compile(rf"(?<![a-z])(?:{'|'.join(f'({EXPRESSIONS[word]})' for word in inside)})(?![a-z])")
    for number, line in lines(path):
        for found in replaced.finditer(words_of(line)):
            if (path.as_posix(), found[0]) not in STAYS:
                yield f"{path}:{number}: {found[0]}; say {REPLACED[inside[(found.lastindex or 1) - 1]]}"


def test_what_the_glossary_has_replaced_does_not_come_back() -> None:
    found = [fault for path in texts() for fault in faults(path)]
    assert not found, "\n".join(found)


def test_what_is_left_to_readers_or_judged_in_some_places_stands_in_the_glossary() -> None:
    assert {*EVERYDAY.split(), *AREAS, *FORMS} <= refused().keys()


def test_a_word_stays_only_where_it_stands() -> None:
    assert not [f"{path}: {word}" for path, word in STAYS if word not in words_of((ROOT / path).read_text())]


def test_every_docstring_of_a_module_begins_with_a_noun() -> None:
    docstrings = {
        path.relative_to(ROOT): docstring(path)
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
