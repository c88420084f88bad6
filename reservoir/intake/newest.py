"""The newest bundle of each name that a site ever took: an older one stays older when the newer one is removed."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import ValidationError

from common import files
from common.errors import IntegrityError
from common.strict import StrictModel
from reservoir.contents.bundle import Bundle, Moment
from reservoir.intake.store import Store, age


class Mark(StrictModel):
    """A bundle's version, and when it was built; the installer reads them as well."""

    version: str
    created: Moment


def read(store: Store) -> dict[str, Mark]:
    """Return the marks by the bundles' names; raises IntegrityError where the file is damaged."""
    try:
        said = json.loads(store.marks.read_bytes())
        return {str(name): Mark.model_validate(mark) for name, mark in said["newest"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise IntegrityError(
            "what is remembered of the newest bundles is damaged",
            where=str(store.marks),
            hint="remove it: what was removed from this site is then no reason to refuse an older bundle",
        ) from error


def remember(store: Store, bundle: Bundle) -> None:
    """Mark a bundle where it is newer than the mark of its name."""
    marks = read(store)
    if bundle.name not in marks or age(bundle) > age(marks[bundle.name]):
        marks[bundle.name] = Mark(version=bundle.version, created=bundle.created)
        content = {"schema": 1, "newest": {name: mark.model_dump() for name, mark in sorted(marks.items())}}
        files.write(store.marks, json.dumps(content) + "\n")


def remember_all(store: Store, leaving: Iterable[Bundle]) -> None:
    """Mark bundles that are about to leave the store, whose import may have ended before it did; own ones have none."""
    for bundle in leaving:
        if not bundle.own:
            remember(store, bundle)
