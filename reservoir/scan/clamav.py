"""The search for malware by ClamAV, with the signatures that lie on this machine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common import process
from common.errors import InputError, NotFoundError
from reservoir.contents.bundle import Bundle
from reservoir.scan.report import Infected, Malware

DEFAULT = Path("/var/lib/clamav")
# what freshclam gets says its time in its first bytes; other signature files have the time of their last change
DATED = (".cvd", ".cld")
PLAIN = (".ndb", ".ndu", ".hdb", ".hdu", ".hsb", ".hsu", ".ldb", ".ldu", ".mdb", ".msb", ".yar", ".yara")
# what ClamAV renews every day; the others may be years old
DAILY = "daily"
FRESH = "carry newer signatures here, such as the daily.cvd of ClamAV"
# the most that ClamAV takes; what is longer still is told, not passed over
LIMITS = ("--max-filesize=2000M", "--max-scansize=4000M", "--max-scantime=0", "--alert-exceeds-max=yes",
          "--alert-encrypted=yes")  # fmt: skip
EXCEEDED = "Heuristics.Limits.Exceeded"
ENCRYPTED = "Heuristics.Encrypted"


@dataclass(frozen=True)
class Clamav:
    """A search with the signatures in a folder; without one, with this machine's."""

    folder: Path | None = None

    def search(self, bundle: Bundle, blobs: Path, now: datetime, max_age_days: int) -> Malware:
        """Search every file of a bundle, and what is packed inside; `blobs` holds them by hash.

        Raises NotFoundError where signatures are missing, InputError where they are too old, UnavailableError where
        ClamAV is not installed, ProcessError where it fails.
        """
        program = process.require("clamscan", "clamav")
        signatures = self._signatures(now, max_age_days)
        names = {artifact.sha256: artifact.filename for artifact in bundle.artifacts}
        missing = [name for sha256, name in names.items() if not (blobs / sha256).is_file()]
        if missing:
            raise InputError(
                f"{missing[0]} and {len(missing) - 1} more files are not here",
                where=str(blobs),
                hint="scan the whole bundle, or the site that imported it",
            )
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
            wanted.writelines(f"{blobs.resolve() / sha256}\n" for sha256 in names)
            wanted.flush()
            options = [f"--database={self._place}", "--no-summary", "--infected", "--stdout", "--allmatch=no", *LIMITS]
            said = process.run([program, *options, f"--file-list={wanted.name}"], accepted=(0, 1))
        found = []
        for line in said.splitlines():
            path, _, signature = line.removesuffix(" FOUND").rpartition(": ")
            if line.endswith(" FOUND"):
                sha256 = Path(path).name
                found.append(Infected(filename=names[sha256], sha256=sha256, signature=signature))
        return Malware(
            engine=process.run([program, "--version", f"--database={self._place}"]).strip(),
            signatures=signatures,
            files=len(names),
            found=[entry for entry in found if not entry.signature.startswith((EXCEEDED, ENCRYPTED))],
            partly=sorted(entry.filename for entry in found if entry.signature.startswith(EXCEEDED)),
            encrypted=sorted(entry.filename for entry in found if entry.signature.startswith(ENCRYPTED)),
        )

    @property
    def _place(self) -> Path:
        return self.folder or DEFAULT

    def _signatures(self, now: datetime, max_age_days: int) -> datetime:
        """Return of when the signatures are: the daily ones, else the oldest, whatever lies beside them."""
        try:
            paths = [path for path in sorted(self._place.iterdir()) if path.suffix in (*DATED, *PLAIN)]
            daily = [path for path in paths if path.stem == DAILY and path.suffix in DATED]
            dated = [path for path in paths if path.suffix in DATED]
            times = [_time(path) for path in daily or dated or paths]
        except OSError as error:
            raise NotFoundError(f"cannot be read: {error.strerror}", where=str(self._place), hint=FRESH) from error
        if not times:
            raise NotFoundError("there are no signatures of malware", where=str(self._place), hint=FRESH)
        made = max(times) if daily else min(times)
        if (now - made).days > max_age_days:
            reason = f"the signatures are of {made:%Y-%m-%d}; {max_age_days} days are allowed"
            raise InputError(reason, where=str(self._place), hint=FRESH)
        return made


def _time(path: Path) -> datetime:
    """Return when signatures were made."""
    if path.suffix not in DATED:
        return datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    with path.open("rb") as file:
        header = file.read(512).decode("ascii", "replace").split(":")
    try:
        return datetime.strptime(header[1], "%d %b %Y %H-%M %z").astimezone(UTC)
    except (IndexError, ValueError) as error:
        raise InputError("these signatures do not say of when they are", where=str(path), hint=FRESH) from error
