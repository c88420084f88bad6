"""The store of a site: blobs, the bundles that brought them, keys, publications. One change at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from packaging.version import Version

from common import files
from common.errors import ConflictError, ForbiddenError, IntegrityError
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush
from reservoir.signing import openpgp


class Store:
    """The reservoir of a site below `root`."""

    def __init__(self, root: Path) -> None:
        """Use the store at `root`; nothing is made yet."""
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.bundles = root / "bundles"
        self.incoming = root / "incoming"
        self.publications = root / "publications"
        self.current = root / "current"
        self.before = root / "before"
        self.after = root / "after"
        self.rollback = root / "rollback.json"
        self.begun = root / "publishing.json"
        self.marks = root / "newest.json"
        self.security = root / "security"
        self.policy = self.security / "policy.yml"
        self.keys = root / "keys"
        self.pinned_key = self.keys / "bundle.pub"
        self.keychain = self.keys / "bundle.keys.json"
        self.site_key = self.keys / "site.key"
        self.receipt_serial = self.keys / "receipt.serial"
        self._lists: dict[bytes, Bundle] = {}
        # the files that were read since this object was made, and found to be what their names say
        self.sound: set[str] = set()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the store for one change; raises ConflictError while another process changes it.

        A first change that fails before anything came leaves no store.
        """
        lock = self.root / ".lock"
        folders = [self.root, self.blobs.parent, self.blobs, self.bundles, self.publications, self.keys]
        missing = [path for path in (*folders, lock) if not path.exists()]
        try:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o700 if folder == self.keys else 0o755)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError as error:
            raise ForbiddenError(
                "the reservoir may not be changed by this user", where=str(self.root), hint="run it as root"
            ) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(handle).st_nlink:
                    raise BlockingIOError("a change that failed took the lock away")
            except BlockingIOError as error:
                raise ConflictError(
                    "another import or publication is running",
                    where=str(self.root),
                    hint="wait until it ends, then run it again",
                ) from error
            for folder in (self.root, self.keys, *self.bundles.glob("[!.]*")):
                files.sweep(folder)
            self._settle()
            try:
                yield
            except BaseException:
                self._forget(missing)
                raise
        finally:
            os.close(handle)

    def _forget(self, made: list[Path]) -> None:
        """Take away what a change made of an empty store, unless something came into it."""
        if self.incoming.exists() or any(self.bundles.glob("*")):
            return
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()

    def imported(self) -> dict[str, Bundle]:
        """Return the imported bundles by identity; raises IntegrityError for a record that cannot be read."""
        # the disk of a store may have folders of its own there
        folders = [path for path in sorted(self.bundles.glob("[!.]*")) if bundles.is_identity(path.name)]
        return {folder.name: self._imported(folder) for folder in folders}

    def _imported(self, folder: Path) -> Bundle:
        path = folder / bundles.LIST
        hint = f"import this bundle again, or run `penstock reservoir remove {folder.name}`"
        try:
            content = path.read_bytes()
            bundle = self.decode(content, str(path))
        except FileNotFoundError as error:
            if not folder.is_dir():
                raise
            raise IntegrityError("the list of an imported bundle is missing", where=str(path), hint=hint) from error
        except IntegrityError as error:
            raise IntegrityError("the list of an imported bundle is damaged", where=str(path), hint=hint) from error
        if bundles.identity(bundle, content) != folder.name:
            raise IntegrityError("the list is that of another bundle", where=str(path), hint=hint)
        return bundle

    def is_readable(self, identity: str) -> bool:
        """Say whether the record of an imported bundle can be read; of one that was never imported this is true."""
        folder = self.bundles / identity
        try:
            return not (bundles.is_identity(identity) and folder.is_dir()) or bool(self._imported(folder))
        except IntegrityError:
            return False

    def mend_list(self, identity: str, content: bytes) -> None:
        """Write the list of an imported bundle anew where it is damaged, as it came with that very bundle again."""
        if not self.is_readable(identity):
            files.write(self.bundles / identity / bundles.LIST, content)
            flush([self.bundles / identity])

    def mend_signature(self, identity: str, signature: bytes) -> None:
        """Keep the signature that an imported bundle came with at last, where it is another or was lost."""
        path = self.bundles / identity / bundles.SIGNATURE
        if not (path.is_file() and path.read_bytes() == signature):
            files.write(path, signature)
            flush([path.parent])

    def arrivals(self) -> dict[str, Bundle]:
        """Return the bundles that are arrivals so far, by identity; they count on blobs that the store has."""
        found = {}
        for path in sorted(self.incoming.glob(f"*/record/{bundles.LIST}")):
            found[path.parent.parent.name] = self._read(path)
        return found

    def drop_arrival(self, folder: Path, *, ignore_errors: bool = False) -> None:
        """Delete what came of a bundle; what was read of it says nothing about a file that comes there later."""
        self.sound = {path for path in self.sound if not path.startswith(f"{folder}/")}
        shutil.rmtree(folder, ignore_errors=ignore_errors)

    def _read(self, path: Path) -> Bundle:
        return self.decode(path.read_bytes(), str(path))

    def decode(self, content: bytes, where: str) -> Bundle:
        """Return a bundle's list as `bundles.decode` does, but once, as that takes long for one of many artifacts."""
        known = hashlib.sha256(content).digest()
        if known not in self._lists:
            self._lists[known] = bundles.decode(content, where)
        return self._lists[known]

    def newest(self) -> dict[str, Bundle]:
        """Return the newest imported bundle of each name that was not set aside, by identity."""
        return dict(sorted(held[0] for held in self.candidates().values()))

    def candidates(self) -> dict[str, list[tuple[str, Bundle]]]:
        """Return the imported bundles that were not set aside with their identities by name, the newest first."""
        found: dict[str, list[tuple[str, Bundle]]] = {}
        for identity, bundle in self.imported().items():
            if not self._aside(identity).exists():
                found.setdefault(bundle.name, []).append((identity, bundle))
        for held in found.values():
            # of one moment the first counts
            held.sort(key=lambda one: age(one[1]), reverse=True)
        return found

    def choose(self, identity: str, chosen: Bundle) -> bool:
        """Let a bundle be the newest of its name: those that are not older are set aside until they are imported again.

        Says whether that changed anything.
        """
        was_aside = self._aside(identity).exists()
        self._aside(identity).unlink(missing_ok=True)
        flush([self._aside(identity).parent])
        # what counts goes last: where this is cut off, that counts still, and nothing that nobody asked for
        held = reversed(self.candidates().get(chosen.name, []))
        newer = [name for name, bundle in held if name != identity and age(bundle) >= age(chosen)]
        marks = [self._aside(name) for name in newer]
        for mark in marks:
            files.write(mark, "")
            flush([mark.parent])
        return bool(marks) or was_aside

    def withdraw(self, identities: Iterable[str]) -> None:
        """Leave bundles out of the next publication; each counts again once it is imported again."""
        marks = [self._aside(identity) for identity in identities]
        for mark in marks:
            files.write(mark, "")
        flush(mark.parent for mark in marks)

    def _aside(self, identity: str) -> Path:
        """Return the file that says that an administrator went back behind a bundle, or withdrew it."""
        return self.bundles / identity / "set-aside"

    def numbers(self) -> list[int]:
        """Return the numbers of the publications that were served, in order."""
        numbers = {int(path.name) for path in self.publications.glob("*") if path.name.isdecimal()}
        return sorted(numbers - {self._unserved()})

    def begin(self, number: int) -> None:
        """Remember that a publication is about to be served for the first time."""
        files.write(self.begun, json.dumps({"schema": 1, "publication": number}))
        flush([self.root])

    def _unserved(self) -> int | None:
        """Return the number of the publication that was interrupted before anybody was served it."""
        try:
            number = int(json.loads(self.begun.read_text())["publication"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return number if number != self.serving() else None

    def _settle(self) -> None:
        """Take away what an interrupted publication left, unless it is served."""
        if (number := self._unserved()) is not None and (folder := self.publications / str(number)).is_dir():
            aside = folder.with_name(f".{number}.new")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            shutil.rmtree(aside)
        self.begun.unlink(missing_ok=True)

    def serving(self) -> int | None:
        """Return the number of the publication that is served, where there is one."""
        return int(self.current.readlink().name) if self.current.is_symlink() else None

    def rolled_back(self) -> bool:
        """Say whether the site serves what an administrator went back to."""
        try:
            said = json.loads(self.rollback.read_text())
            numbers = said["publication"], said.get("before")
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityError(
                "what is remembered of a rollback is damaged",
                where=str(self.rollback),
                hint="run `penstock reservoir publish`, or go back again",
            ) from error
        serving = self.serving()
        return serving is not None and serving in numbers

    def rollback_begun(self) -> bool:
        """Say whether a rollback was interrupted after it switched, and before anybody was told of it."""
        try:
            said = json.loads(self.rollback.read_text())
            return bool(said["begun"]) and bool(said["publication"] == self.serving())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def mark_rollback(self, number: int, *, begun: bool = False) -> None:
        """Remember that an administrator went back to a publication, or with `begun` that this is about to happen.

        Until then the site serves what was gone back to `before`, where it does.
        """
        said: dict[str, object] = {"schema": 1, "publication": number}
        if begun:
            said |= {"begun": True}
            with suppress(IntegrityError):
                said |= {"before": self.serving() if self.rolled_back() else None}
        files.write(self.rollback, json.dumps(said))
        flush([self.root])

    def apt_key(self) -> bytes:
        """Return the site's secret key for Debian repositories, made at the first call."""
        path = self.keys / "apt.key"
        if not path.exists():
            files.write(path, openpgp.new_key(), 0o600)
        return path.read_bytes()


class Aged(Protocol):
    """What has a version and the moment of a build."""

    @property
    def version(self) -> str: ...

    @property
    def created(self) -> str: ...


def age(bundle: Aged) -> tuple[Version, str]:
    """Return what orders bundles of one name: the version, then the time of the build."""
    return Version(bundle.version), bundle.created
