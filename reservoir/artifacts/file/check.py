"""Checks of files: what stands between them and their publication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.errors import Problem
from reservoir.artifacts.kind import Find, one_each
from reservoir.contents.artifact import FileArtifact
from reservoir.contents.bundle import Bundle


def check(bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:  # noqa: ARG001 - as every kind
    """Yield each name that two different files have."""
    yield from chosen(bundles)[1]


def chosen(bundles: Sequence[Bundle]) -> tuple[dict[str, FileArtifact], list[Problem]]:
    """Return the files of some bundles by name, and the problems of names that are not one file's."""
    every = [file for bundle in bundles for file in bundle.of_kind(FileArtifact)]
    return one_each(
        every,
        lambda file: file.filename,
        lambda file: Problem(file.filename, "two different files have one name", "rename one in its bundle"),
    )
