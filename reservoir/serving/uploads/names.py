"""The names that uploads may have, and whose they are.

What the reservoir publishes, or published once, is not shadowed unless an administrator allows it. Any other name is
that of the account which uploaded it first, and of those that an administrator names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.utils import InvalidName, canonicalize_name

from common import files
from common.errors import InputError, IntegrityError, NotFoundError, UnavailableError
from reservoir.publication import past_names


class Names:
    """Names of Python packages at the site whose store is at `root`; all of them in their normal form."""

    def __init__(self, root: Path) -> None:
        """Use the store at `root`; nothing is read yet."""
        self.simple = root / "current" / "pypi" / "simple"
        self.list = root / "uploads.json"
        self.root = root

    def allowed(self) -> list[str]:
        """Return the published names that uploads may have as well; raises IntegrityError where the list is damaged."""
        return sorted(self._read()["allowed"])

    def owners(self, name: str) -> list[str]:
        """Return the accounts that an administrator gave a name to; without any it is its first uploader's."""
        owners: dict[str, list[str]] = self._read()["owners"]
        return sorted(owners.get(normal(name), []))

    def given_to(self, account: str) -> list[str]:
        """Return the names that an administrator gave to an account."""
        return sorted(name for name, owners in self._read()["owners"].items() if account in owners)

    def shown_of(self, name: str) -> list[str]:
        """Return the accounts whose uploads alone are shown beside a published name; nothing where all are shown."""
        known = self._read()
        return sorted(known["owners"].get(normal(name), [])) if normal(name) in known["allowed"] else []

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
        """Say whether the name belongs to publications alone, also to those of before.

        Raises what `published` raises.
        """
        return (self.published(name) or normal(name) in past_names.read(self.root)) and normal(
            name
        ) not in self.allowed()

    def conflicts(self, uploaded: Iterable[str]) -> list[str]:
        """Return the names of uploads that the publication hides."""
        return sorted(normal(name) for name in uploaded if self.shut(name))

    def allow(self, name: str, owners: Iterable[str]) -> bool:
        """Let uploads by `owners` have a published name; return whether that is new.

        Raises InputError for what is no name.
        """
        known = self._read()
        wanted = {"allowed": sorted({*known["allowed"], normal(name)})}
        return self._keep(known, wanted | {"owners": known["owners"] | {normal(name): sorted({*owners})}})

    def deny(self, name: str) -> None:
        """Take an allowance back; raises NotFoundError where there is none."""
        known = self._read()
        if normal(name) not in known["allowed"]:
            raise NotFoundError(
                "uploads of this name were not allowed", where=name, hint="look at `penstock reservoir uploads list`"
            )
        self._keep(known, {"allowed": [other for other in known["allowed"] if other != normal(name)]})

    def give(self, name: str, owners: Iterable[str]) -> bool:
        """Make these accounts, and no others, the owners of a name; return whether that is new.

        Raises InputError for what is no name, and where nobody would own it.
        """
        wanted = sorted({*owners})
        if not wanted:
            raise InputError("would have no owner", where=normal(name), hint="add another owner first")
        known = self._read()
        return self._keep(known, {"owners": known["owners"] | {normal(name): wanted}})

    def _read(self) -> dict[str, Any]:
        """Return what the list says; raises IntegrityError where it is damaged."""
        try:
            said = json.loads(self.list.read_text())
            return {"allowed": [*said["allowed"]], "owners": {**said.get("owners", {})}}
        except FileNotFoundError:
            return {"allowed": [], "owners": {}}
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                "the list of allowed names is damaged",
                where=str(self.list),
                hint="remove it, and allow the names again",
            ) from error

    def _keep(self, known: dict[str, Any], wanted: dict[str, Any]) -> bool:
        if known | wanted == known:
            return False
        files.write(self.list, json.dumps({"schema": 1} | known | wanted) + "\n")
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
