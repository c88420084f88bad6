"""Sources of a target's Debian packages: the machine's own for its release, and those of the manifest."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from common.errors import InputError
from reservoir.manifest.model import Source
from reservoir.manifest.releases import RELEASES

LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#\n]*)")
# how apt says no
NO = ("no", "false", "without", "off", "disable", "0")
ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"


@dataclass(frozen=True)
class Entry:
    """One suite of a source. `signed_by` is what deb822 has for it: files, fingerprints, or a key in the text.

    Nothing else of a source comes along: neither that it is trusted without a signature, nor that its age does not
    count, nor for which architectures this machine reads it.
    """

    uris: str
    suite: str
    components: str
    signed_by: str = ""
    expires: bool = True

    def text(self) -> str:
        """Return the entry as apt reads it, in the form deb822."""
        values = {
            "Types": "deb",
            "URIs": self.uris,
            "Suites": self.suite,
            "Components": self.components,
            "Signed-By": self.signed_by,
            "Check-Valid-Until": "" if self.expires else "no",
        }
        return "".join(f"{name}: {value}\n" for name, value in values.items() if value)


def machine(main: Path, parts: Path) -> list[Entry]:
    """Return every source of binary packages that this machine has switched on."""
    found: list[Entry] = []
    for path in (main, *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))):
        if path.is_file():
            found += _stanzas(path.read_text()) if path.suffix == ".sources" else _lines(path.read_text())
    return found


def for_release(entries: Iterable[Entry], release: str) -> list[Entry]:
    """Return the entries that carry `release`.

    Where there are none, the machine's mirrors are asked for another release of its distribution than its own: they
    serve them all, so the code name is exchanged in the suites of this machine's release.
    """
    entries = list(entries)
    if direct := [entry for entry in entries if _carries(entry.suite, release)]:
        return direct
    own = _own_release(release)
    if not own:
        return []
    return [
        replace(entry, suite=release + entry.suite.removeprefix(own)) for entry in entries if _carries(entry.suite, own)
    ]


def of_manifest(source: Source, folder: Path, keys: Path) -> Entry:
    """Return a source of the manifest in `folder`; its keys are copied below `keys`.

    Raises InputError where a file of keys cannot be read.
    """
    files = []
    for index, name in enumerate(source.keys):
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise InputError(
                f"the key {name} cannot be read: {error.strerror}",
                where=f"source {source.name}",
                hint="put the file with the source's public keys there",
            ) from error
        # apt tells the two forms of a key apart by the name of the file
        path = keys / f"{source.name}-{index}.{'asc' if ARMOUR in content else 'gpg'}"
        path.write_bytes(content)
        files.append(str(path))
    # apt only links to what lies on this machine, unless it is told to copy
    uri = source.url.replace("file://", "copy:", 1)
    return Entry(uri, source.suite or "", " ".join(source.components), " ".join(files))


def host(source: Source) -> str:
    """Return the name by which apt's preferences know where a source lies; it is empty for this machine's disk."""
    return urlsplit(source.url).hostname or ""


def _own_release(other: str) -> str:
    """Return the code name of this machine's release; nothing where it is of another distribution than `other`."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return ""
    wanted = RELEASES.get(other)
    same = wanted is not None and system["ID"] == wanted.distribution.lower()
    return system.get("VERSION_CODENAME", "") if same else ""


def _lines(text: str) -> Iterator[Entry]:
    """Yield the sources of a file with one line each."""
    for match in filter(None, map(LINE.match, text.splitlines())):
        signed_by = re.search(r"\bsigned-by=(\S+)", match["options"] or "")
        keys = signed_by[1].replace(",", " ") if signed_by else ""
        yield Entry(match["uri"], match["suite"], match["components"].strip(), keys)


def _stanzas(text: str) -> Iterator[Entry]:
    """Yield the sources of a deb822 file, one for each suite."""
    for stanza in re.split(r"\n\s*\n", text):
        entry = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        if "deb" not in _value(entry, "Types").split() or _value(entry, "Enabled").lower() in NO:
            continue
        for suite in _value(entry, "Suites").split():
            components = " ".join(_value(entry, "Components").split())
            yield Entry(" ".join(_value(entry, "URIs").split()), suite, components, _value(entry, "Signed-By"))


def _value(entry: str, name: str) -> str:
    match = re.search(rf"^{name}:[ \t]*(.*(?:\n[ \t].*)*)", entry, re.MULTILINE | re.IGNORECASE)
    return match[1].rstrip() if match else ""


def _carries(suite: str, release: str) -> bool:
    """Say whether a suite belongs to the release: itself, its updates, its security updates."""
    return suite == release or suite.startswith((f"{release}-", f"{release}/"))
