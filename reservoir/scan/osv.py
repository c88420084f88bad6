"""Advisories in the OSV format, read one at a time from folders and archives; see the OSV schema, version 1."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from common.errors import InputError, NotFoundError

# the longest advisories of the world have a few megabytes; more than this is no advisory
LARGEST = 64 << 20
# what the names of malicious packages begin with, at the OpenSSF and in OSV
MALWARE = "MAL-"
T = TypeVar("T")
# the schema lets `null` stand for an empty list
Listed = Annotated[list[T], BeforeValidator(lambda value: [] if value is None else value)]


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("no day in UTC, whose years are 1 to 9999") from error


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
HINT = "get the advisories again from where they were exported"


class Event(BaseModel):
    """A point in the order of versions where a fault comes or goes; `0` is before every version."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Event:
        if sum(value is not None for value in (self.introduced, self.fixed, self.last_affected, self.limit)) != 1:
            raise ValueError("an event is one of introduced, fixed, last_affected, limit")
        return self

    @property
    def version(self) -> str:
        """Return where the event stands."""
        return next(v for v in (self.introduced, self.fixed, self.last_affected, self.limit) if v is not None)


class Range(BaseModel):
    """Versions between events; only those of the type ECOSYSTEM are in the order of the ecosystem."""

    type: Literal["ECOSYSTEM", "SEMVER", "GIT"]
    events: Annotated[list[Event], Field(min_length=1)]


class Package(BaseModel):
    """A package as its ecosystem names it."""

    ecosystem: str
    name: str


class Severity(BaseModel):
    """How bad it is, in the notation `type`."""

    type: str
    score: str


class Affected(BaseModel):
    """Versions of one package that have the fault."""

    package: Package | None = None
    ranges: Listed[Range] = []
    versions: Listed[str] = []
    severity: Listed[Severity] = []
    ecosystem_specific: dict[str, Any] | None = None
    database_specific: dict[str, Any] | None = None


class Advisory(BaseModel):
    """One known fault; keys that the checker does not need are passed over. `place` is where it was read from."""

    id: Annotated[str, Field(min_length=1)]
    modified: Moment
    withdrawn: Moment | None = None
    aliases: Listed[str] = []
    upstream: Listed[str] = []
    summary: str | None = None
    details: str | None = None
    severity: Listed[Severity] = []
    affected: Listed[Affected] = []
    database_specific: dict[str, Any] | None = None
    place: str = ""

    @property
    def malware(self) -> set[str]:
        """Return the names by which it is known as malware, whichever of its names is the first."""
        return {name for name in (self.id, *self.aliases) if name.startswith(MALWARE)}

    @property
    def names(self) -> set[str]:
        """Return every name of this very fault.

        A distribution's advisory on one upstream fault is that fault; one on several is its own. Malware is what its
        database calls it alone: an exception for a fault does not hold for it.
        """
        if self.malware:
            return self.malware
        return {self.id, *self.aliases, *(self.upstream if len(self.upstream) == 1 else [])}

    @property
    def cves(self) -> set[str]:
        """Return the upstream faults that it speaks of, which exceptions name one by one; malware is none of them."""
        if self.malware:
            return set()
        return {name for name in (self.id, *self.aliases, *self.upstream) if name.startswith("CVE-")}

    @property
    def database(self) -> str:
        """Return whose word it is, as its id begins: `GHSA`, `DSA`, `DEBIAN`."""
        return self.id.partition("-")[0]

    @property
    def is_exported(self) -> bool:
        """Whether it has the mark that OSV puts on what it exports: where each part of it comes from."""
        return any((affected.database_specific or {}).get("source") for affected in self.affected)


def read(sources: Sequence[Path]) -> Iterator[Advisory]:
    """Yield every advisory in folders, archives and files, one at a time.

    Its place is the archive that it is in, else the source: an export comes as one or the other.

    Raises NotFoundError where a source is missing, InputError that names the file where one is damaged.
    """
    for source in sources:
        if not source.exists():
            raise NotFoundError(
                "there are no advisories", where=str(source), hint="give a folder or a zip file of OSV advisories"
            )
        paths = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
        for path in paths:
            if path.suffix == ".json":
                yield _parse(_content(path), str(path), str(source))
            elif path.suffix == ".zip":
                yield from _archive(path)
            elif path == source:
                raise InputError("not a file of advisories", where=str(path), hint="give a .json or .zip file")


def _content(path: Path) -> bytes:
    _require_size(path.stat().st_size, str(path))
    return path.read_bytes()


def _archive(path: Path) -> Iterator[Advisory]:
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                where = f"{path}: {entry.filename}"
                if entry.filename.endswith(".json"):
                    _require_size(entry.file_size, where)
                    yield _parse(archive.read(entry), where, str(path))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"the archive is damaged: {error}", where=where, hint=HINT) from error


def _require_size(size: int, where: str) -> None:
    if size > LARGEST:
        raise InputError(f"{size / 1e6:.0f} MB are too long for an advisory", where=where, hint=HINT)


def _parse(content: bytes, where: str, place: str) -> Advisory:
    try:
        advisory = Advisory.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        reason = f"not an OSV advisory: {first['msg'].removeprefix('Value error, ')}"
        raise InputError(reason, where=f"{where}: {field}".removesuffix(": "), hint=HINT) from error
    advisory.place = place
    return advisory
