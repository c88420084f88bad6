"""Targets as locks and bundles name them, and the versions of the version sets that bind them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from common.strict import StrictModel
from reservoir.manifest.releases import RELEASES


class TargetRecord(StrictModel):
    """The kind of machine that artifacts are for; `python` is absent where it gets no Python packages.

    `osv` is the ecosystem of its packages in security advisories, where the manifest names one.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")]
    os: Literal["debian", "rpm"]
    release: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    arch: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+$")]
    python: str | None = None
    osv: str | None = None

    @property
    def ecosystem(self) -> str | None:
        """Return the ecosystem of the target's own packages; None where the manifest does not name it."""
        known = RELEASES.get(self.release) if self.os == "debian" else None
        return self.osv or (known.osv if known else None)


class SetVersions(StrictModel):
    """The versions of a version set, as resolved for one target: package name to version."""

    name: str
    target: str
    packages: dict[str, str]
