"""A signed RPM repository: packages, metadata and modules of one release and architecture."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

import yaml

from common.errors import ConflictError
from reservoir.artifacts.rpm.createrepo import createrepo_c
from reservoir.contents.artifact import ModuleMetadata, RpmArtifact, RpmPart
from reservoir.signing import openpgp

Place = Callable[[str, Path], None]


def write(
    tree: Path, rpms: Iterable[RpmArtifact], modules: str, *, created: datetime, secret: bytes, place: Place
) -> None:
    """Write one repository; the same packages at the same time make the same metadata.

    `place(sha256, path)` puts a package's file at a path. Raises ConflictError where two packages of one version
    differ.
    """
    pool: dict[str, RpmArtifact] = {}
    for rpm in rpms:
        if pool.setdefault(rpm.filename, rpm).sha256 != rpm.sha256:
            raise ConflictError(
                f"two different files call themselves {rpm.name} {rpm.version}",
                where=rpm.filename,
                hint="publish bundles that were made from one source",
            )
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
        package = createrepo_c.package_from_rpm(str(tree / path), createrepo_c.SHA256, location_href=str(path))
        package.time_file = int(created.timestamp())
        for file in described.values():
            file.add_pkg(package)
    for file in described.values():
        file.close()
    records = [createrepo_c.RepomdRecord(name, str(data / f"{name}.xml.gz")) for name in described]
    if modules:
        (data / "modules.yaml.gz").write_bytes(gzip.compress(modules.encode(), mtime=0))
        records.append(createrepo_c.RepomdRecord("modules", str(data / "modules.yaml.gz")))
    index = _index(records, created)
    (data / "repomd.xml").write_bytes(index)
    (data / "repomd.xml.asc").write_bytes(openpgp.sign_beside(secret, index))


def modules(parts: Iterable[RpmPart]) -> str:
    """Return the text of `modules.yaml`: the chosen streams, each made the default of its module.

    Parts that are keys are passed over. Raises ConflictError where one module is wanted in two streams.
    """
    texts: list[str] = []
    streams: dict[str, ModuleMetadata] = {}
    for part in parts:
        if not isinstance(part.metadata, ModuleMetadata):
            continue
        texts.append(part.metadata.text)
        first = streams.setdefault(part.name, part.metadata)
        if first.stream != part.metadata.stream:
            raise ConflictError(
                f"two streams of one module are wanted: {first.stream} and {part.metadata.stream}",
                where=part.name,
                hint="publish bundles that take the same stream",
            )
    defaults = [
        {
            "document": "modulemd-defaults",
            "version": 1,
            "data": {"module": name.removeprefix("modules/"), "stream": chosen.stream},
        }
        for name, chosen in streams.items()
    ]
    return "".join(f"---\n{document}" for document in sorted([*texts, *map(yaml.safe_dump, defaults)]))


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
