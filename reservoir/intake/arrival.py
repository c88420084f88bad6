"""Arrival: what has come of one bundle so far, good blobs and pieces, kept until the bundle is complete."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from functools import partial
from pathlib import Path

from common import files
from common.errors import IntegrityError, Problem
from common.progress import Progress, counter
from reservoir.bundle import bundles
from reservoir.bundle.medium import encode
from reservoir.bundle.verification import Verified, carried_digest, carried_pieces, check_blobs
from reservoir.download.cache import flush, reads_as
from reservoir.download.threads import in_threads
from reservoir.intake.copies import Copies, copying, gone_when_it_fails
from reservoir.intake.store import Store
from reservoir.signing import ed25519

DAMAGED = "make a new receipt and build the delta with it, or carry the full bundle"


class Arrival:
    """The folder of one bundle below the store's `incoming`.

    Files named by a hash had that hash when they came. `record` becomes the bundle's record in the store, `media`
    holds the descriptions of the media that arrived, `key` is who signed the last one.
    """

    def __init__(self, store: Store, found: Verified) -> None:
        """Use the place of a bundle; nothing is made yet."""
        self.store = store
        self.found = found
        self.sizes = found.bundle.sizes()
        self.carried = found.files()
        self.folder = store.incoming / found.identity
        self.record = self.folder / "record"
        self.media = self.folder / "media"
        self.key = self.folder / "key.pub"

    def require_same_maker(self) -> None:
        """Raise IntegrityError where what came earlier was signed with a key that this one does not replace."""
        if not self.key.exists():
            return
        earlier = ed25519.read_public(self.key.read_bytes(), str(self.key))
        if not self.found.chain.leads(earlier, self.found.key):
            raise IntegrityError(
                "the media that came earlier are signed with another key",
                where=str(self.found.folder / bundles.PUBLIC_KEY),
                hint=f"check which key is the maker's; to begin anew remove {self.folder}",
            )

    def forget_unfinished(self) -> None:
        """Delete the copies that a killed import left without a name: their space is needed, and they come again."""
        for folder in (self.folder, self.record):
            for left in folder.glob("*.partial"):
                left.unlink()

    def collect(self, broken: Collection[str], progress: Progress) -> list[Problem]:
        """Take over everything that is good in the folder, which lacks what is `broken`; return what is not good."""
        found = self.found
        problems: list[Problem] = []
        self.record.mkdir(parents=True, exist_ok=True)
        if found.of_set:
            self.media.mkdir(exist_ok=True)
        for folder in (self.folder, self.record, self.media):
            files.sweep(folder)
        files.write(self.key, ed25519.encode_public(found.key))
        files.write(self.record / bundles.LIST, found.content)
        files.write(self.record / bundles.SIGNATURE, found.signature)
        with copying() as copies:
            for name, sha256 in found.bundle.attachments.items():
                came = self.record / name
                if name in broken or (came.is_file() and reads_as(came, sha256)):
                    continue
                if copies.copy(found.folder / name, came, sha256) != sha256:
                    problems.append(found.problem(found.folder / name, "was changed while it was read"))
            unwanted = {*broken, *(piece for piece, blob in self._pieces().items() if self._has(blob))}
            wanted = {name: size for name, size in self.carried.items() if name not in unwanted}
            problems += check_blobs(found, wanted, partial(self._take_over, copies), progress, "import")
        if found.medium and found.of_set:
            name = f"{found.medium.set_name()[:16]}-{found.medium.number}.json"
            files.write(self.media / name, encode(found.medium))
            flush([self.media])
        self._join()
        # who is told that a medium arrived may put it away
        flush([self.record, self.folder, self.store.incoming, self.store.root])
        return problems

    def lacking(self) -> set[str]:
        """Return the blobs and attachments that neither came nor are at the site."""
        attachments = {name for name in self.found.bundle.attachments if not (self.record / name).is_file()}
        return {blob for blob in self.sizes if not self._has(blob)} | attachments

    def lacking_media(self) -> tuple[list[int], list[int]]:
        """Return the media of the set that are wanted and never came, and those that came damaged."""
        medium = self.found.medium
        if medium is None:
            return [], []
        lacking = self.lacking()
        pieces = self._pieces()
        wanted = [
            number
            for number, names in enumerate(medium.files, 1)
            if any(pieces.get(name, name) in lacking and not (self.folder / name).is_file() for name in names)
        ]
        prefix = medium.set_name()[:16]
        missing = [number for number in wanted if not (self.media / f"{prefix}-{number}.json").exists()]
        return missing, [number for number in wanted if number not in missing]

    def check(self, progress: Progress) -> list[Problem]:
        """Read what was not read in this run: what came earlier, and what only the store has; return what is bad."""
        unread = {blob: size for blob, size in self.sizes.items() if str(self.blob(blob)) not in self.store.sound}
        labels = self.found.labels()
        note = counter("check what the site has", sum(unread.values()), progress)

        def check(blob: str) -> Problem | None:
            came, path = self.folder / blob, self.blob(blob)
            good = reads_as(path, blob)
            note(unread[blob])
            if good:
                return None
            if path == came:
                came.unlink()
            else:
                files.write(self._damaged(blob), "")
            return Problem(str(path), f"{labels[blob]} was damaged at the site", self._hint(blob))

        return [problem for problem in in_threads(check, sorted(unread)) if problem]

    def blob(self, blob: str) -> Path:
        """Return where a blob lies, as it came or as the store has it."""
        came = self.folder / blob
        return came if came.is_file() else self.store.blobs / blob

    def commit(self, progress: Progress) -> None:
        """Move the blobs into the store, and then the record, which makes the bundle count."""
        progress("take it into the store")
        came = [blob for blob, size in self.sizes.items() if _is_file(f"{self.folder}/{blob}", size)]
        self._mend_publications(came)
        for blob in came:
            os.replace(f"{self.folder}/{blob}", f"{self.store.blobs}/{blob}")  # noqa: PTH105 - as in `_is_file`
        self.store.sound.update(f"{self.store.blobs}/{blob}" for blob in came)
        flush([self.store.blobs, *self.record.iterdir(), self.record])
        final = self.store.bundles / self.found.identity
        if final.exists():
            for path in self.record.iterdir():
                files.write(final / path.name, path.read_bytes())
        else:
            self.record.replace(final)
        flush([final, self.store.bundles])
        self.store.drop_arrival(self.folder)

    def space(self) -> int:
        """Return how many bytes must still come, with what the biggest cut blob takes while it is put together."""
        cut = self.found.medium.cut if self.found.medium else {}
        lacking = {blob: self.sizes[blob] for blob in self.sizes if not self._has(blob)}
        pieces = {piece for blob in cut.keys() & lacking.keys() for piece in cut[blob]}
        came = sum(piece.size for piece in pieces if (self.folder / piece.sha256).is_file())
        return sum(lacking.values()) - came + max((lacking[blob] for blob in cut.keys() & lacking.keys()), default=0)

    def _mend_publications(self, came: list[str]) -> None:
        """Link publications to what came, where they share a file with the store that it replaces: that was damaged."""
        held = {blob: self.store.blobs / blob for blob in came if (self.store.blobs / blob).is_file()}
        good = {path.stat().st_ino: self.folder / blob for blob, path in held.items()}
        beside = self.store.publications / ".mended"
        for path in self.store.publications.rglob("*") if good else ():
            if not path.is_symlink() and path.is_file() and (source := good.get(path.stat().st_ino)):
                beside.unlink(missing_ok=True)
                os.link(source, beside)
                beside.replace(path)

    def _take_over(self, copies: Copies, name: str, path: Path) -> str:
        """Bring one file of the folder beside the store where it is lacking; return its hash."""
        came = self.folder / name
        if self.found.of_set and came.is_file():
            return name
        for held in (came, self.store.blobs / name):
            if _is_file(str(held), self.carried[name]) and reads_as(held, name):
                # whoever says that the bundle is whole has read all of it; of one medium the good files count
                said = name if self.found.of_set else carried_digest(path, self.carried[name])
                break
        else:
            held, said = came, copies.copy(path, came, name, self.carried[name])
        if said == name:
            self.store.sound.add(str(held))
        return said

    def _has(self, blob: str) -> bool:
        size = self.sizes[blob]
        if _is_file(f"{self.folder}/{blob}", size):
            return True
        return _is_file(f"{self.store.blobs}/{blob}", size) and not self._damaged(blob).exists()

    def _damaged(self, blob: str) -> Path:
        """Return the file that says that what the store has of a blob was read and found damaged."""
        return self.folder / f"{blob}.damaged"

    def _join(self) -> None:
        """Put the blobs together whose pieces are all there."""
        cut = self.found.medium.cut if self.found.medium else {}
        for blob, pieces in cut.items():
            parts = [self.folder / piece.sha256 for piece in pieces]
            if self._has(blob) or not all(part.is_file() for part in parts):
                continue
            beside = self.folder / f"{blob}.partial"
            said = hashlib.sha256()
            with gone_when_it_fails(beside), beside.open("wb") as file:
                for part, cut_off in zip(parts, pieces, strict=True):
                    for content in carried_pieces(part, cut_off.size):
                        said.update(content)
                        file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if said.hexdigest() != blob:
                # a piece was damaged while it waited: all of them must come again
                for part in {*parts, beside}:
                    part.unlink()
                continue
            beside.chmod(0o444)
            beside.replace(self.folder / blob)
            self.store.sound.add(str(self.folder / blob))
            for piece in {piece.sha256 for piece in pieces} - self._wanted_pieces():
                (self.folder / piece).unlink()

    def _pieces(self) -> dict[str, str]:
        """Return for each piece of this set the blob that it belongs to."""
        cut = self.found.medium.cut if self.found.medium else {}
        return {piece.sha256: blob for blob, pieces in cut.items() for piece in pieces}

    def _wanted_pieces(self) -> set[str]:
        """Return the pieces of blobs that are not put together yet."""
        cut = self.found.medium.cut if self.found.medium else {}
        return {piece.sha256 for blob, pieces in cut.items() if not self._has(blob) for piece in pieces}

    def _hint(self, blob: str) -> str:
        """Return where a blob that the site holds damaged can come from."""
        medium = self.found.medium
        if medium is None:
            return bundles.HINT
        names = {blob, *(piece.sha256 for piece in medium.cut.get(blob, []))}
        numbers = [str(number) for number, listed in enumerate(medium.files, 1) if names & set(listed)]
        return f"import medium {', '.join(numbers)} again" if numbers and self.found.of_set else DAMAGED


def _is_file(path: str, size: int) -> bool:
    """Say whether a file of so many bytes lies there; asked for each blob several times, so by one call."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path for each costs more than the question
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size
