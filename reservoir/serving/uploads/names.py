"""The names that uploads may have: what the reservoir publishes is not shadowed unless an administrator allows it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import InvalidName, canonicalize_name

from common import files
from common.errors import InputError, IntegrityError, NotFoundError, UnavailableError


class Names:
    """Names of Python packages at the site whose store is at `root`; all of them in their normal form."""

    def __init__(self, root: Path) -> None:
        """Use the store at `root`; nothing is read yet."""
        self.simple = root / "current" / "pypi" / "simple"
        self.list = root / "uploads.json"

    def allowed(self) -> list[str]:
        """Return the published names that uploads may have as well; raises IntegrityError where the list is damaged."""
        try:
            return sorted(json.loads(self.list.read_text())["allowed"])
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                "the list of allowed names is damaged",
                where=str(self.list),
                hint="remove it, and allow the names again",
            ) from error

    def published(self, name: str) -> bool:
        """Say whether the site publishes a package of that name.

        Raises InputError for what is no name, UnavailableError while there is no publication: then nobody knows.
        """
        if not self.simple.is_dir():
            raise UnavailableError(
                "there is no publication", where=str(self.simple), hint="run `penstock reservoir publish`"
            )
        return (self.simple / normal(name) / "index.json").is_file()

    def shut(self, name: str) -> bool:
        """Say whether the name belongs to the publication alone; raises what `published` raises."""
        return self.published(name) and normal(name) not in self.allowed()

    def conflicts(self, uploaded: Iterable[str]) -> list[str]:
        """Return the names of uploads that the publication hides."""
        return sorted(normal(name) for name in uploaded if self.shut(name))

    def allow(self, name: str) -> bool:
        """Let uploads have a published name; return whether that is new. Raises InputError for what is no name."""
        return self._keep({*self.allowed(), normal(name)})

    def deny(self, name: str) -> None:
        """Take an allowance back; raises NotFoundError where there is none."""
        if normal(name) not in self.allowed():
            raise NotFoundError(
                "uploads of this name were not allowed", where=name, hint="look at `penstock reservoir uploads list`"
            )
        self._keep({*self.allowed()} - {normal(name)})

    def _keep(self, allowed: set[str]) -> bool:
        if allowed == {*self.allowed()}:
            return False
        files.write(self.list, json.dumps({"schema": 1, "allowed": sorted(allowed)}) + "\n")
        return True


def normal(name: str) -> str:
    """Return a name in the form in which two spellings of one package are equal; raises InputError for what is none."""
    try:
        return canonicalize_name(name, validate=True)
    except InvalidName as error:
        raise InputError(
            "is not the name of a Python package",
            where=name,
            hint="use letters, digits, and - _ . between them",
        ) from error
