"""The signed RPM repositories of a publication, one for each release and architecture."""

from __future__ import annotations

from reservoir.artifacts.kind import Staging
from reservoir.artifacts.rpm import modules
from reservoir.artifacts.rpm.check import chosen, served
from reservoir.contents.artifact import KeyMetadata, RpmPart
from reservoir.manifest.model import MACHINES
from reservoir.signing import openpgp

KEY = "rpm.asc"


def publish(staging: Staging) -> None:
    """Write `rpm/RELEASE/ARCH/` for every RPM target of the bundles; ARCH is what dnf calls `$basearch`.

    A package that a version set binds is there in that version alone. Beside the keys of nodes go the site's key, which
    signs the metadata, and for each repository the keys that signed its packages. Raises ConflictError where bundles
    contradict each other.
    """
    every = served(staging.bundles)
    if not every:
        return
    staging.progress("publish RPM packages")
    # it needs a library of the system that a site without RPM packages may lack
    from reservoir.artifacts.rpm import repository

    (staging.keys / KEY).write_bytes(openpgp.public_key(staging.secret))
    for (release, arch), found in sorted(every.items()):
        machine = MACHINES[arch]
        parts = list({part.sha256: part for part in found if isinstance(part, RpmPart)}.values())
        makers = sorted(part.metadata.text for part in parts if isinstance(part.metadata, KeyMetadata))
        (staging.keys / f"rpm-{release}-{machine}.asc").write_text("\n".join(makers))
        repository.write(
            staging.tree / "rpm" / release / machine,
            chosen(staging.bundles, release, arch, found),
            modules.served(parts),
            created=staging.created,
            secret=staging.secret,
            place=staging.place,
        )
