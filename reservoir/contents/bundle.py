"""The content of `bundle.json`: what a bundle holds, for which targets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from common.strict import StrictModel
from reservoir.contents.artifact import A, Artifact, Filename, of_kind
from reservoir.contents.target import SetVersions, TargetRecord
from reservoir.manifest.model import Sha256, version_number

# such as 2026-01-02T03:04:05Z; clocks count from 1970, and of years before 1000 not every reader keeps the zeros
Moment = Annotated[
    str,
    StringConstraints(pattern=r"^(19[7-9]\d|[2-9]\d{3})-\d\d-\d\dT\d\d:\d\d:\d\dZ$"),
    AfterValidator(lambda text: f"{datetime.fromisoformat(text):%Y-%m-%dT%H:%M:%SZ}"),
]
# what the names of bundles begin with that were made at the site
OWN = "local-"


class Bundle(StrictModel):
    """The content of `bundle.json`.

    `expires` is when its maker no longer answers for it, where that is said. `installer` holds the hashes of the files
    that start an installation, `attachments` those of what people read beside the list: the SBOM, the report of the
    security checker.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    version: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$"), AfterValidator(version_number)
    ]
    created: Moment
    expires: Moment | None = None
    targets: list[TargetRecord]
    artifacts: list[Artifact]
    version_sets: list[SetVersions] = Field(default_factory=list)
    installer: dict[Filename, Sha256] = Field(default_factory=dict)
    attachments: dict[Filename, Sha256] = Field(default_factory=dict)

    model_config = ConfigDict(populate_by_name=True)

    @property
    def own(self) -> bool:
        """Say whether the site made it itself."""
        return self.name.startswith(OWN)

    @property
    def ecosystems(self) -> set[str]:
        """Return the ecosystems of the targets' own packages in security advisories, as far as they are named."""
        return {target.ecosystem for target in self.targets if target.ecosystem}

    def of_kind(self, *kinds: type[A]) -> list[A]:
        """Return the artifacts of some kinds, in the bundle's order."""
        return of_kind(self.artifacts, *kinds)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each blob by its hash."""
        return {artifact.sha256: artifact.size for artifact in self.artifacts}
