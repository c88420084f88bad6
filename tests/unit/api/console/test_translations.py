"""Translations: every text in every language, with the names that it has in English; languages as browsers ask for."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog

import api
from api.console import texts
from api.console.texts import Speech, speech, wanted
from api.scheduler.phrases import IN_USE
from api.tables.users import Language
from common.sentence import Sentence
from tools.translations import LANGUAGES, catalogue, messages

NAMES = re.compile(r"%\(\w+\)[ds]|%%|\{\w*\}")
ROOT = Path(api.__file__).parent
WORD = re.compile(r"[A-Za-z]{2,}")
SAME = {
    *("GPU", "CPU", "KiB", "MiB", "GiB", "API", "UTC", "CSV", "PVC", "PC", "ID", "IPv", "RDMA", "latest"),
    *("NVLink", "Slurm", "PostgreSQL", "JavaScript", "Shell", "alice", "bob", "tensorflow", "null", "true", "false"),
    *("Penstock", "NUL", "EPERM", "ENOSYS", "GET", "POST", "Origin", "Cookie", "interactive", "reservoir"),
    *("InfiniBand", "NAME", "VALUE", "ro", "fGPU"),
    *("command", "sleep", "args", "infinity", "kill", "sh", "echo", "hello", "penstock", "user", "unbind"),
}
"""Words that are the same in every language: units, names, and what is typed."""
CODE = re.compile(r"`[^`]+`|[\w{}]*[_/.][\w{}/.]+", re.ASCII)
"""What is typed as it stands, in every language: commands, fields, paths and files."""
OTHERS = [language for language in Language if language is not Language.ENGLISH]


@pytest.fixture(scope="module")
def source() -> Catalog:
    return messages()


def ids(found: Catalog) -> set[object]:
    return {message.id for message in found if message.id}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_has_every_text_and_no_other(language: str, source: Catalog) -> None:
    assert ids(catalogue(language)) == ids(source), "run python -m tools.translations, and translate what is new"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated_with_the_names_that_it_has(language: str) -> None:
    for message in catalogue(language):
        if not message.id:
            continue
        assert not message.fuzzy
        named = set(NAMES.findall(message.id if isinstance(message.id, str) else message.id[1]))
        strings = [message.string] if isinstance(message.string, str) else list(message.string or [""])
        assert all(set(NAMES.findall(each)) == named for each in strings), message.id
        assert all(strings), message.id
        for each in strings:
            assert set(WORD.findall(NAMES.sub("", CODE.sub("", each)))) <= SAME, f"{message.id} is still English"


@pytest.mark.parametrize("language", OTHERS)
def test_a_sentence_is_said_with_all_that_is_in_it(language: Language) -> None:
    amount = Sentence("{gpus} GPUs", gpus="2")
    why = Sentence("no node has {amount} free; {piece}", amount=amount, piece=IN_USE)
    said = why.said_in(speech(language))
    assert "2" in said
    assert not re.search(r"[a-z]", said)


def test_moments_and_numbers_are_written_as_languages_do() -> None:
    at = datetime(2026, 1, 31, 23, 5, tzinfo=UTC)
    written = {language.value: speech(language).moment(at) for language in Language}
    assert written == {
        "en": "2026-01-31 23:05 UTC",
        "ko": "2026. 1. 31. 23:05 UTC",
        "ja": "2026/01/31 23:05 UTC",
        "zh": "2026年1月31日 23:05 UTC",
        "th": "31 ม.ค. 2026 23:05 UTC",
    }
    assert speech(Language.KOREAN).instant(at.replace(second=9)) == "2026. 1. 31. 23:05:09 UTC"
    assert speech(Language.ENGLISH).number(12345.5) == "12,345.5"
    assert speech(Language.JAPANESE).several(["a", "b"]) == "a、b"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("ko", "ko"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("de-DE,de;q=0.9,ja;q=0.5,en;q=0.4", "ja"),
        ("zh-TW", "zh"),
        ("th;q=0.3, en;q=0.9", "en"),
        ("fr", "en"),
        ("ko;q=0, th;q=0.1", "th"),
        ("ko;q=x, ja;q=0.1", "ja"),
        ("ko;q=nan,ja;q=0.2", "ja"),
        ("*", "en"),
        ("," * 10_000 + "ko", "en"),
    ],
)
def test_a_browser_is_answered_in_the_language_that_it_likes_best_of_ours(header: str, language: str) -> None:
    assert wanted(header) == language


def test_every_language_is_offered_by_its_own_name() -> None:
    assert set(texts.NAMES) == set(Language)
    assert isinstance(speech(Language.THAI), Speech)


def untold(source: str) -> list[str]:
    """Return what is given as a reason of a session, and is no sentence: nobody could read it in another language."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            named = [(_text(key), value) for key, value in zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.keyword):
            named = [(node.arg or "", node.value)]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named = [(node.targets[0].id, node.value)]
        else:
            continue
        found += [ast.unparse(value) for name, value in named if name in ("reason", "why") and _is_made_here(value)]
    return found


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_made_here(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_made_here(node.body) or _is_made_here(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_made_here(node.left) or _is_made_here(node.right)
    return isinstance(node, ast.JoinedStr) or bool(_text(node))


REASONS = sorted(
    path
    for folder in ("control/reconcilers", "control", "resources/sessions")
    for path in (ROOT / folder).glob("*.py")
    # these tell of something else than sessions
    if path.name not in {"automatic_repair.py", "image_check.py", "observe.py"}
)


@pytest.mark.parametrize("path", REASONS, ids=lambda path: path.stem)
def test_no_reason_of_a_session_goes_past_translation(path: Path) -> None:
    assert untold(path.read_text()) == []


@pytest.mark.parametrize("path", sorted((ROOT / "scheduler").glob("*.py")), ids=lambda path: path.stem)
def test_the_scheduler_tells_by_sentences_alone(path: Path) -> None:
    tree = ast.parse(path.read_text())
    returned = [
        ast.unparse(node.value)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and isinstance(function.returns, ast.Name)
        if function.returns.id == "str" and not function.name.startswith("__")
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None and _is_made_here(node.value)
    ]
    assert path.name == "record.py" or [each for each in returned if " " in each] == []


def test_a_reason_past_translation_is_found() -> None:
    assert untold('x = {"reason": f"{a} is gone"}') == ["f'{a} is gone'"]
    assert untold('change(reason="gone" if a else "")') == ["'gone' if a else ''"]
    assert untold('reason = Sentence("gone")\nchange(reason="")') == []
