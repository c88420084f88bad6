"""YAML documents that people write: parsed safely, checked against a model, errors with file, line and hint."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from common import findings
from common.errors import InputError, Problem
from common.known_keys import nearest
from common.places import Path, dotted

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class YamlDocument:
    """Parsed YAML that remembers on which line each value stands.

    `lines` maps the path of a value, such as `("nodes", 0, "address")`, to its line, counted from 1.
    """

    source: str
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """Return the line of the value at `path`, or of the nearest value around it that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def where(self, path: Path) -> str:
        """Return `file:line: a.b[0]` for an error message."""
        return f"{self.source}:{self.line(path)}: {dotted(path)}".removesuffix(": ")

    def problem(self, path: Path, reason: str, hint: str) -> Problem:
        """Return a problem that points to the value at `path`."""
        return Problem(self.where(path), reason, hint)


def parse(text: str, source: str) -> YamlDocument:
    """Parse YAML `text`; `source` is the file name that errors show.

    Raises InputError where it is not YAML, is not one mapping, or says a key twice.
    """
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise InputError(
                    "the document is not a mapping of keys to values",
                    where=f"{source}:1",
                    hint="write `key: value` lines",
                )
            lines: dict[Path, int] = {}
            _note_lines(node, (), lines, source)
            data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InputError(
            f"not valid YAML: {error.problem}", where=f"{source}:{line}", hint="mend the syntax"
        ) from error
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}", where=source, hint="mend the syntax") from error
    return YamlDocument(source, data, lines)


def check(model: type[ModelT], document: YamlDocument) -> ModelT:
    """Return the document as a `model`; raises one InputError that lists every problem with its line."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise InputError.of(
            [
                document.problem(
                    _known(document, item["loc"]),
                    findings.reason(item),
                    _hint(model, item),
                )
                for item in error.errors()
            ]
        ) from error


def _hint(model: type[BaseModel], item: ErrorDetails) -> str:
    """Return what to do about one of pydantic's findings; a key that is misspelt is likely the one most like it."""
    if item["type"] == "extra_forbidden" and (likely := nearest(model, item["loc"])):
        return f"did you mean `{likely}`? Otherwise remove the key"
    return findings.hint(item)


def _known(document: YamlDocument, location: tuple[int | str, ...]) -> Path:
    """Drop the parts that pydantic adds for keys and union members; keep a last part that names a missing key."""
    location = tuple(part for part in location if part != "[key]")
    path: Path = ()
    for index, part in enumerate(location):
        if (*path, part) in document.lines or index == len(location) - 1:
            path = (*path, part)
    return path


def _note_lines(node: yaml.Node, path: Path, lines: dict[Path, int], source: str) -> None:
    """Record the line of every value below `node`, and refuse a key that stands twice."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        for key_node, value_node in node.value:
            key = key_node.value
            if key in seen:
                raise InputError(
                    "this key stands twice",
                    where=f"{source}:{key_node.start_mark.line + 1}: {dotted((*path, key))}",
                    hint="keep one of them",
                )
            seen.add(key)
            lines[(*path, key)] = key_node.start_mark.line + 1
            _note_lines(value_node, (*path, key), lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_lines(item, (*path, index), lines, source)
