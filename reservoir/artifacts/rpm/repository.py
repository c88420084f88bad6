"""A signed RPM repository: packages, metadata and modules of one release and architecture."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.kind import AGAIN
from reservoir.artifacts.rpm.check import named
from reservoir.artifacts.rpm.createrepo import createrepo_c
from reservoir.contents.artifact import RpmArtifact
from reservoir.signing import openpgp

Place = Callable[[str, Path], None]
# what no XML can hold, while a package may say it in its description
UNSPEAKABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
ENTRIES = {
    "primary": createrepo_c.xml_dump_primary,
    "filelists": createrepo_c.xml_dump_filelists,
    "other": createrepo_c.xml_dump_other,
}


def write(
    tree: Path, rpms: Iterable[RpmArtifact], modules: str, *, created: datetime, secret: bytes, place: Place
) -> None:
    """Write one repository; the same packages at the same time make the same metadata.

    `place(sha256, path)` puts a package's file at a path. Raises ConflictError where two packages of one version
    differ.
    """
    pool, problems = named(rpms)
    if problems:
        raise ConflictError.of(problems)
    data = tree / "repodata"
    data.mkdir(parents=True)
    described = {
        "primary": createrepo_c.PrimaryXmlFile(str(data / "primary.xml.gz"), createrepo_c.GZ_COMPRESSION),
        "filelists": createrepo_c.FilelistsXmlFile(str(data / "filelists.xml.gz"), createrepo_c.GZ_COMPRESSION),
        "other": createrepo_c.OtherXmlFile(str(data / "other.xml.gz"), createrepo_c.GZ_COMPRESSION),
    }
    for file in described.values():
        file.set_num_of_pkgs(len(pool))
    for filename, rpm in sorted(pool.items()):
        path = PurePosixPath("Packages", filename[0].lower(), filename)
        place(rpm.sha256, tree / path)
        package = _described(tree, path)
        package.time_file = int(created.timestamp())
        for name, file in described.items():
            file.add_chunk(_entry(ENTRIES[name], package))
    for file in described.values():
        file.close()
    records = [createrepo_c.RepomdRecord(name, str(data / f"{name}.xml.gz")) for name in described]
    if modules:
        (data / "modules.yaml.gz").write_bytes(gzip.compress(modules.encode(), mtime=0))
        records.append(createrepo_c.RepomdRecord("modules", str(data / "modules.yaml.gz")))
    index = _index(records, created)
    (data / "repomd.xml").write_bytes(index)
    (data / "repomd.xml.asc").write_bytes(openpgp.sign_beside(secret, index))


def _described(tree: Path, path: PurePosixPath) -> createrepo_c.Package:
    """Return what a package says of itself; raises IntegrityError where it is none."""
    try:
        return createrepo_c.package_from_rpm(str(tree / path), createrepo_c.SHA256, location_href=str(path))
    except (createrepo_c.CreaterepoCError, OSError, ValueError) as error:
        raise IntegrityError(f"it is no RPM package: {error}", where=path.name, hint=AGAIN) from error


def _entry(dump: Callable[[createrepo_c.Package], str], package: createrepo_c.Package) -> str:
    """Return the XML on a package; what it says and XML cannot hold is replaced, so that the others can be read."""
    try:
        text = dump(package)
    except UnicodeDecodeError as error:
        # the library lets surrogates and overlong forms through, and Python does not
        text = error.object.decode("utf-8", "replace")
    return UNSPEAKABLE.sub(REPLACEMENT, text)


def _index(records: Sequence[createrepo_c.RepomdRecord], created: datetime) -> bytes:
    """Return the text of `repomd.xml`; each file that it lists gets its hash into its name."""
    index = createrepo_c.Repomd()
    index.set_revision(str(int(created.timestamp())))
    for record in records:
        record.fill(createrepo_c.SHA256)
        record.set_timestamp(int(created.timestamp()))
        record.rename_file()
        index.set_record(record)
    return bytes(index.xml_dump(), "utf-8")
