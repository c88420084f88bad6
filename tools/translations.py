"""Catalogues of the console's languages: `python -m tools.translations` adds what the source says by now.

What it says no more goes, and what is new stands there without a translation, which a test finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.pofile import read_po, write_po

import api
from api.auth.policy import Action
from api.console.texts import FOLDER
from api.tables.users import Language
from common import findings, hints, image_references, repairs, sandbox, sandbox_rules, starts
from common.gpu import share

ROOT = Path(api.__file__).parent
_SHARED = (findings, hints, image_references, repairs, sandbox, sandbox_rules, share, starts)
SHARED = tuple(Path(each.__file__ or "") for each in _SHARED)
"""What is said of values that people send, and that the console shows."""
LANGUAGES = [language.value for language in Language if language is not Language.ENGLISH]
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "Sentence": None, "counted": (1, 2), "sentence": None}
"""What texts are given to: functions of templates and of code, sentences, and what makes these where it is given."""
OPTIONS = {"trimmed": "true", "extensions": "jinja2.ext.i18n", "newstyle_gettext": "true"}


def messages() -> Catalog:
    """Return all that the console says, without translations."""
    found = Catalog(project="Penstock", charset="utf-8", fuzzy=False)
    for path in (*sorted(ROOT.rglob("*.py")), *SHARED):
        for _, message, _, _ in _texts("python", path):
            found.add(message)
    for action in Action:
        found.add(action.value)
    for path in sorted((ROOT / "console" / "templates").glob("*.html")):
        for _, message, _, _ in _texts("jinja2.ext:babel_extract", path):
            found.add(message)
    return found


def catalogue(language: str) -> Catalog:
    """Return the catalogue of a language as it is."""
    with (FOLDER / f"{language}.po").open("rb") as file:
        return read_po(file, language)


def update(language: str, template: Catalog) -> None:
    """Bring the catalogue of a language up to date."""
    found = Catalog(locale=language, project="Penstock", charset="utf-8", fuzzy=False)
    known = catalogue(language) if (FOLDER / f"{language}.po").exists() else found
    for message in template:
        if message.id:
            old = known.get(message.id)
            found.add(message.id, old.string if old else "")
    with (FOLDER / f"{language}.po").open("wb") as file:
        write_po(file, found, omit_header=True, no_location=True, sort_output=True, width=120)


def _texts(method: str, path: Path) -> Iterator[tuple[int, str | tuple[str, ...], list[str], str | None]]:
    return iter(extract_from_file(method, path, keywords=KEYWORDS, options=OPTIONS, strip_comment_tags=True))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    source = messages()
    for name in LANGUAGES:
        update(name, source)
