"""The licences of a bundle's packages, read once and remembered."""

from __future__ import annotations

import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import files
from common.errors import PenstockError
from reservoir.artifacts.debian import licence as copyright_files
from reservoir.artifacts.licence import FAILED, Found
from reservoir.artifacts.python import licence as wheels
from reservoir.artifacts.rpm import licence as rpms
from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact, RpmArtifact, of_kind
from reservoir.download.cache import Cache

# counts up when the same file gives another licence
READING = 4


def read_all(artifacts: Iterable[Artifact], cache: Cache) -> dict[str, Found]:
    """Return the licence of every package by its hash; what was read once is remembered in the cache."""
    memory = cache.root / f"licences-{READING}.json"
    try:
        known = {sha256: Found(**entry) for sha256, entry in json.loads(memory.read_text()).items()}
    except (FileNotFoundError, ValueError, TypeError):
        known = {}
    every = list(artifacts)
    debs = of_kind(every, DebianArtifact)
    wanted = {artifact.sha256: artifact for artifact in (*of_kind(every, PythonArtifact), *debs)}
    new = [artifact for sha256, artifact in wanted.items() if sha256 not in known]
    if new:
        with ThreadPoolExecutor(2) as pool:
            found = pool.map(lambda artifact: read(artifact, cache.path(artifact.sha256)), new)
            known |= {artifact.sha256: licence for artifact, licence in zip(new, found, strict=True)}
        lasting = {sha256: vars(licence) for sha256, licence in sorted(known.items()) if not licence.failed}
        files.write(memory, json.dumps(lasting))
    by_name = {deb.name: known[deb.sha256] for deb in debs if not known[deb.sha256].same_as}
    stated = {rpm.sha256: rpms.stated(rpm) for rpm in of_kind(every, RpmArtifact)}
    return stated | {sha256: by_name.get(known[sha256].same_as, known[sha256]) for sha256 in wanted}


def read(artifact: PythonArtifact | DebianArtifact, path: Path) -> Found:
    """Return the licence that a package's file states."""
    try:
        return wheels.read(path) if isinstance(artifact, PythonArtifact) else copyright_files.read(artifact.name, path)
    except PenstockError as error:
        return Found(None, f"{FAILED}: {error.problems[0].reason}")
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError) as error:
        return Found(None, f"{FAILED}: {error}")
