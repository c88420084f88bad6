"""What a site holds: blobs, the bundles that brought them, keys, publications. One change at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.version import Version

from reservoir import apt_tree, files
from reservoir import bundle as bundles
from reservoir.errors import ConflictError, ForbiddenError
from reservoir.model import Bundle


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
        self.keys = root / "keys"
        self.pinned_key = self.keys / "bundle.pub"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the store for one change; raises ConflictError while another process changes it."""
        try:
            for folder in (self.root, self.blobs, self.bundles, self.publications):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o755)
            self.keys.mkdir(exist_ok=True)
            self.keys.chmod(0o700)
            handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError as error:
            raise ForbiddenError(
                "the reservoir may not be changed by this user", where=str(self.root), cure="run it as root"
            ) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConflictError(
                    "another import or publication is running",
                    where=str(self.root),
                    cure="wait until it ends, then run it again",
                ) from error
            yield
        finally:
            os.close(handle)

    def imported(self) -> dict[str, Bundle]:
        """Return the imported bundles by identity."""
        found = {}
        for folder in sorted(self.bundles.glob("[!.]*")):
            path = folder / bundles.LIST
            found[folder.name] = bundles.decode(path.read_bytes(), str(path))
        return found

    def newest(self) -> dict[str, Bundle]:
        """Return the newest imported bundle of each name, by identity."""
        best: dict[str, tuple[str, Bundle]] = {}
        for identity, bundle in self.imported().items():
            old = best.get(bundle.name)
            if old is None or age(bundle) > age(old[1]):
                best[bundle.name] = (identity, bundle)
        return dict(sorted(best.values()))

    def apt_key(self) -> bytes:
        """Return the site's secret key for Debian repositories, made at the first call."""
        path = self.keys / "apt.key"
        if not path.exists():
            files.write(path, apt_tree.new_key(), 0o600)
        return path.read_bytes()


def age(bundle: Bundle) -> tuple[Version, str]:
    """Return what orders bundles of one name: the version, then the time of the build."""
    return Version(bundle.version), bundle.created
