"""The report of a scan: facts without a judgement, the same for the same bundle and the same advisories."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from common.strict import StrictModel
from reservoir.contents.artifact import KindName
from reservoir.scan.severity import LEVELS, Level


class Item(StrictModel):
    """A file of the bundle; `images` are the images of the bundle that it is inside of."""

    kind: KindName
    name: str
    version: str
    filename: str
    sha256: str
    targets: list[str]
    images: list[str]


class Finding(StrictModel):
    """One known fault in one package.

    `names` are all names of the fault, `cves` all that it is about. `advised` is the package as the advisories name it,
    for Debian the source package. `score` is by CVSS; `fixed` are versions that no longer have the fault; `doubt` says
    why it may not apply.
    """

    id: str
    names: list[str]
    cves: list[str] = Field(default_factory=list)
    ecosystem: str
    advised: str
    version: str
    severity: Level | Literal["unknown"]
    score: float | None
    summary: str
    fixed: list[str]
    doubt: str
    advisories: list[str]
    items: list[Item]


class Checked(StrictModel):
    """An ecosystem that was checked: how many packages against how many advisories.

    `newest` is when the greatest database among those that speak of it was changed last.
    """

    ecosystem: str
    packages: int
    advisories: int
    newest: AwareDatetime


class NotChecked(StrictModel):
    """What no advisory was asked about, and why; `partly` where one was asked about a part of it."""

    name: str
    reason: str
    partly: bool = False


class Licence(StrictModel):
    """The licence of a file: an SPDX expression, or None where none could be read; `source` says where it stands."""

    kind: KindName
    name: str
    version: str
    sha256: str
    expression: str | None
    source: str


class Infected(StrictModel):
    """A file in which the search for malware found something."""

    filename: str
    sha256: str
    signature: str


class Malware(StrictModel):
    """A search for malware: by which program, with signatures of which day, through how many files.

    `partly` are files of which not everything was searched, because they are too long or too deeply packed,
    `encrypted` those with parts that only a password opens.
    """

    engine: str
    signatures: AwareDatetime
    files: int
    found: list[Infected]
    partly: list[str]
    encrypted: list[str] = Field(default_factory=list)


class Report(StrictModel):
    """What was found in a bundle. `malware` is None where nobody searched for it."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    bundle: str
    version: str
    checked: list[Checked]
    not_checked: list[NotChecked]
    findings: list[Finding]
    licences: list[Licence]
    malware: Malware | None

    model_config = ConfigDict(populate_by_name=True)

    def counts(self) -> list[tuple[str, int]]:
        """Return how many findings there are of each severity, the worst first."""
        found = [finding.severity for finding in self.findings]
        return [(level, sum(severity == level for severity in found)) for level in (*reversed(LEVELS), "unknown")]

    def encode(self) -> bytes:
        """Return the report as JSON."""
        return self.model_dump_json(by_alias=True, indent=1).encode() + b"\n"
