"""The files of a lock."""

from __future__ import annotations

from reservoir.artifacts.kind import Resolved, Resolving
from reservoir.contents.artifact import FileArtifact
from reservoir.download import fetch


def resolve(resolving: Resolving) -> Resolved:
    """Return the files that the manifest lists, for every target."""
    wanted = resolving.manifest
    if not wanted.files:
        return Resolved()
    targets = [target.name for target in wanted.targets]
    with fetch.client(resolving.indexes().certificates, wanted.addresses) as http:
        return Resolved(
            [
                FileArtifact(
                    name=file.name,
                    version=file.version,
                    filename=file.name,
                    sha256=file.sha256,
                    size=fetch.known_size(http, resolving.cache, file.url, file.sha256),
                    origin=file.url,
                    targets=targets,
                )
                for file in wanted.files
            ]
        )
