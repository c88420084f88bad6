"""Rebuild of reservoir node and master on a bare machine, from a bundle and a backup: unseal, deploy, restore.

One that was interrupted goes on where it was, with the same backup.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from appliance.site import deployment, inventory
from appliance.site.alone import alone
from appliance.site.backup import restore, signature
from appliance.site.backup.catalogue import Record
from appliance.site.backup.make import Backups
from appliance.site.backup.restore import Restored
from appliance.site.backup.secrets import AUTHORITY, Places, require_bare
from appliance.site.deployment import DeployListener, Deployment
from common import files
from common.errors import ConflictError
from reservoir.intake.trust import Spoken

UNDER_WAY = "rebuild"
"""The file of the state that names the backup of a rebuild from its beginning to its end."""


@dataclass
class Rebuilt:
    """What came of a rebuild; `seconds` by step."""

    restored: Restored
    deployment: Deployment
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebuild:
    """A rebuild from the backups in `source`, opened by `identity`, and from a bundle.

    `by` is who may have made the backup, in hex; with none it is anybody's. `spoken` says whose bundle to trust, where
    neither installer nor backup does.
    """

    source: Path
    identity: Path
    bundle: Path
    by: str
    listener: DeployListener
    places: Places = field(default_factory=Places)
    spoken: Spoken = field(default_factory=Spoken)

    def run(self, name: str | None) -> Rebuilt:
        """Rebuild from a backup by its name, or the newest good one."""
        record = signature.chosen(self.source, name, self.by)
        seconds: dict[str, float] = {}
        with _clock(seconds, "unseal"):
            self._unseal(record)
        with _clock(seconds, "deploy"):
            site, text = deployment.deployed_site(self.places.state), self._site_file.read_text(encoding="utf-8")
            deployed = deployment.deploy(
                site,
                self.bundle,
                self.listener,
                file=text,
                spoken=self.spoken,
                state=self.places.state,
                root=self.places.root,
            )
        with _clock(seconds, "restore"), alone(self.places.state) as held:
            backups = Backups(site, self.listener.event, places=self.places)
            restored = restore.restore(
                backups, record.name, self.source, replace=False, unsigned=not self.by, held=held
            )
        self._under_way.unlink()
        return Rebuilt(restored, deployed, seconds)

    @property
    def _under_way(self) -> Path:
        return self.places.state / UNDER_WAY

    @property
    def _site_file(self) -> Path:
        return self.places.state / inventory.SITE_FILE

    def _unseal(self, record: Record) -> None:
        """Put back what was sealed, unless a rebuild from the same backup has done so before."""
        before = self._under_way.read_text(encoding="utf-8").strip() if self._under_way.exists() else ""
        if before and before != record.name:
            raise ConflictError(
                f"a rebuild from {before} has begun on this machine",
                where=str(self._under_way),
                hint=f"name {before} to go on with it, or begin with a bare machine",
            )
        if before and (self.places.state / AUTHORITY).exists():
            return
        require_bare(self.places)
        self.places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(self._under_way, record.name + "\n", 0o600)
        restore.unseal(record.name, self.source, self.identity, self.by, self.places)


@contextmanager
def _clock(seconds: dict[str, float], step: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - begin, 1)
