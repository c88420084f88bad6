"""The metadata of an RPM repository: fetched, held against its signature and its hashes, never older than before."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin, urlsplit

import httpx

from common import files, process
from common.errors import IntegrityError, ProcessError, UnavailableError
from reservoir.artifacts.rpm import unpacking
from reservoir.artifacts.rpm.source import Repository
from reservoir.download import fetch
from reservoir.download.cache import CHUNK, Cache, pieces, space_on
from reservoir.signing import openpgp

REPO = "{http://linux.duke.edu/metadata/repo}"
INDEX = "repodata/repomd.xml"
# seconds that a source's clock may be ahead of this machine's
AHEAD_S = 86_400
STRONG = ("sha224", "sha256", "sha384", "sha512")
READERS: dict[str, Callable[[Path], BufferedIOBase]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
ZSTD = ".zst"
# bytes; metadata unpacks to that much or to so many times its size, whatever is declared: filelists reach 50 times
SMALL, TIMES = 64 << 20, 100


@dataclass(frozen=True)
class Sum:
    """A hash as metadata gives it: the name of the algorithm and the digits."""

    kind: str
    digits: str


@dataclass(frozen=True)
class MetadataFile:
    """One file of the metadata; `name` tells how it is compressed, `path` is where it lies now.

    `source` is whose it is, `open_size` how many bytes it has unpacked, 0 where that is not declared.
    """

    name: str
    path: Path
    source: str = ""
    open_size: int = 0

    @contextmanager
    def plain(self) -> Iterator[Path]:
        """Give the file as it is without compression; raises IntegrityError where it is damaged, or far too long."""
        if PurePosixPath(self.name).suffix not in (*READERS, ZSTD):
            yield self.path
            return
        most = max(SMALL, TIMES * self.path.stat().st_size)
        most = min(most, self.open_size or most)
        with space_on(self.path.parent), tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            plain = Path(folder) / "plain"
            try:
                self._unpack(plain, most)
            except (OSError, EOFError, zlib.error, lzma.LZMAError, ProcessError) as error:
                if plain.exists() and plain.stat().st_size > most:
                    raise self._refusal(f"unpacks to more than {most} bytes") from error
                raise self._refusal(f"cannot be unpacked: {error}") from error
            yield plain

    def _unpack(self, plain: Path, most: int) -> None:
        """Unpack it; raises an error behind the first byte beyond `most`."""
        suffix = PurePosixPath(self.name).suffix
        if suffix == ZSTD:
            process.run([sys.executable, "-P", "-m", unpacking.__name__, self.path, plain, str(most)])
            return
        with READERS[suffix](self.path) as packed, plain.open("wb") as file:
            while piece := packed.read(CHUNK):
                file.write(piece[: most + 1 - file.tell()])
                if file.tell() > most:
                    raise EOFError

    def _refusal(self, reason: str) -> IntegrityError:
        return IntegrityError(
            f"the metadata of {self.source} {reason}", where=self.name, hint="ask the keeper of the package source"
        )

    def text(self) -> str:
        """Return what stands in it."""
        with self.plain() as path:
            return path.read_text()


def read(
    http: httpx.Client, cache: Cache, repository: Repository, names: Collection[str], *, may_be_older: bool
) -> dict[str, MetadataFile]:
    """Return those files of the metadata that are among `names`, such as `primary`.

    Raises IntegrityError where the signature or a hash does not hold, and where the metadata is older than what this
    machine saw there before, unless it `may_be_older`.
    """
    url = urljoin(repository.url, INDEX)
    index = fetch.read(http, url)
    if repository.signed:
        _check_signature(http, repository, url, index)
    entries = _entries(index, url)
    _require_past(entries, url)
    seen = cache.root / "rpm" / f"{hashlib.sha256(repository.url.encode()).hexdigest()}.xml"
    if seen.is_file() and not may_be_older:
        _check_age(entries, _entries(seen.read_bytes(), str(seen)), repository, url)
    found = {}
    for entry in entries:
        kind = entry.get("type", "")
        if kind in names:
            place = _child(entry, "location", url).get("href", "")
            checksum = _child(entry, "checksum", url)
            known = Sum(checksum.get("type", ""), (checksum.text or "").strip())
            size = _number(_child(entry, "size", url).text, "size", url)
            sha256 = obtain(http, cache, beside(repository.url, place), known, size)
            open_size = _number(entry.findtext(f"{REPO}open-size"), "open-size", url)
            found[kind] = MetadataFile(place, cache.path(sha256), repository.name, open_size)
    if "primary" not in found:
        raise IntegrityError("it lists no packages", where=url, hint="ask the keeper of the package source")
    seen.parent.mkdir(exist_ok=True)
    files.write(seen, index)
    return found


def beside(base: str, place: str) -> str:
    """Return the address of what metadata names from `base`; raises IntegrityError where it leads to another server.

    What a server says of itself does not choose what this machine reads elsewhere, least of all its own files.
    """
    url = urljoin(base, place)
    if _server(url) != _server(base):
        raise IntegrityError(
            f"the metadata names {place[:200]!r}, which does not lie with its source",
            where=base,
            hint="ask the keeper of the package source",
        )
    return url


def _server(url: str) -> tuple[str, str]:
    """Return scheme and place of a server; a user and a password are no part of it."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


def obtain(http: httpx.Client, cache: Cache, url: str, known: Sum, size: int) -> str:
    """Bring a file into the cache and return its sha256; raises IntegrityError where its known hash differs.

    What is known by another algorithm is fetched to learn its sha256, which is remembered.
    """
    if known.kind not in STRONG:
        raise IntegrityError(
            f"it is known by {known.kind} alone, which proves nothing",
            where=url,
            hint="ask the keeper of the package source for sha256",
        )
    if known.kind == "sha256":
        fetch.fetch(http, cache, url, sha256=known.digits, size=size)
        return known.digits
    note = cache.root / "rpm" / f"{known.kind}-{known.digits}"
    if note.is_file() and cache.has(note.read_text(), size):
        return note.read_text()
    note.parent.mkdir(exist_ok=True)
    with space_on(cache.root), tempfile.TemporaryDirectory(dir=cache.root) as folder:
        path = Path(folder) / "file"
        fetch.to_file(http, url, path, size)
        digest = hashlib.new(known.kind)
        for piece in pieces(path):
            digest.update(piece)
        if digest.hexdigest() != known.digits:
            raise IntegrityError(
                f"it has the {known.kind} {digest.hexdigest()}, not {known.digits}",
                where=url,
                hint="try again; when it stays, ask the keeper of the package source",
            )
        sha256, _ = cache.add(path)
        files.write(note, sha256)
    return sha256


def _check_signature(http: httpx.Client, repository: Repository, url: str, index: bytes) -> None:
    try:
        signature = fetch.read(http, f"{url}.asc")
    except UnavailableError as error:
        raise IntegrityError(
            f"the metadata of {repository.name} is not signed: {error.problems[0].reason}",
            where=f"{url}.asc",
            hint="where nobody signs it, set `unsigned_metadata: true` on the source; packages must be signed still",
        ) from error
    if not openpgp.signed_beside(repository.keys, index, signature):
        raise IntegrityError(
            f"the signature of the metadata of {repository.name} is by none of the source's keys",
            where=url,
            hint="try again; when it stays, give the source its right `keys`, or ask its keeper",
        )


def _check_age(entries: list[ET.Element], before: list[ET.Element], repository: Repository, url: str) -> None:
    if _newest(entries, url) < _newest(before, url):
        raise IntegrityError(
            f"the metadata of {repository.name} is older than what was there before",
            where=url,
            hint="ask another mirror, or name the source in the manifest's `allow_expired`",
        )


def _newest(entries: list[ET.Element], where: str) -> int:
    """Return the time of the newest file, in seconds since 1970."""
    return max((_number(entry.findtext(f"{REPO}timestamp"), "timestamp", where) for entry in entries), default=0)


def _require_past(entries: list[ET.Element], where: str) -> None:
    """Raise IntegrityError where a file is of a day to come: after it every true one would count as older."""
    if _newest(entries, where) > time.time() + AHEAD_S:
        raise IntegrityError(
            "its timestamp lies more than a day ahead",
            where=where,
            hint="set this machine's clock; when it is right, ask the keeper of the package source",
        )


def _number(text: str | None, name: str, where: str) -> int:
    """Return a whole number of the metadata, 0 where it says nothing; raises IntegrityError for what is none."""
    if not re.fullmatch(r"\s*[0-9]{0,15}\s*", text or ""):
        raise IntegrityError(
            f"its {name} is no whole number: {(text or '')[:60]!r}",
            where=where,
            hint="ask the keeper of the package source",
        )
    return int((text or "").strip() or 0)


def _entries(index: bytes, where: str) -> list[ET.Element]:
    try:
        # the parser of the standard library refuses entities that grow
        return ET.fromstring(index).findall(f"{REPO}data")  # noqa: S314
    except ET.ParseError as error:
        raise IntegrityError(
            f"is no index: {error}", where=where, hint="ask the keeper of the package source"
        ) from error


def _child(entry: ET.Element, name: str, where: str) -> ET.Element:
    found = entry.find(f"{REPO}{name}")
    if found is None:
        raise IntegrityError(
            f"the entry {entry.get('type')} has no {name}", where=where, hint="ask the keeper of the package source"
        )
    return found
