"""Templates: no text goes past translation, no script or style stands in a page, nothing is marked as safe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import api.console

TEMPLATES = sorted((Path(api.console.__file__).parent / "templates").glob("*.html"))
TRANSLATED = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}", re.DOTALL)
OURS = re.compile(r"&\w+;|\S*/\S*|Penstock|GPU|CPU")
"""Signs, paths, and words that are the same in every language."""
SHOWN = re.compile(r'\s(?:placeholder|title|aria-label|alt|hx-confirm|data-silent|data-unsent|data-differ)="([^"]*)"')


def untranslated(template: str) -> list[str]:
    """Return what people would read that no catalogue knows."""
    plain = TRANSLATED.sub("", template)
    words = [*SHOWN.findall(plain), *re.split(r"<[^>]*>", re.sub(r"<!doctype html>", "", plain))]
    return [word.strip() for word in words if re.search(r"[A-Za-z]{2}", OURS.sub("", word))]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_all_that_people_read_is_translated(template: Path) -> None:
    assert untranslated(template.read_text()) == []


def test_a_text_past_translation_is_found() -> None:
    assert untranslated('<p title="More">{{ _("Fine") }}</p><b>Hello</b>') == ["More", "Hello"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_form_writes_into_the_address_what_was_typed_where_its_script_does_not_run(template: Path) -> None:
    forms = re.findall(r"<form[^>]*>", template.read_text())
    assert [form for form in forms if 'method="post"' not in form and 'role="search"' not in form] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_nothing_is_inline_or_marked_as_safe(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|\shx-on|\|\s*safe|autoescape", text)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_cell_keeps_the_height_of_its_row(template: Path) -> None:
    """As one that is laid out by itself does not: the lines between rows then are no lines."""
    assert not re.search(r'<t[dh][^>]* class="[^"]*\bactions\b', template.read_text())
