"""A private apt root: the machine's own package sources and options, but none of its packages and none of its hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from reservoir import process, settings
from reservoir.errors import InputError, PenstockError, ProcessError, UnavailableError
from reservoir.manifest import Target

HELPER = Path("/usr/lib/apt/apt-helper")
FOLDERS = (
    "state/lists/partial",
    "cache/archives/partial",
    "etc/sources.list.d",
    "etc/preferences.d",
    "etc/empty",
    "log",
)
# what debootstrap's smallest variant installs beside everything of priority "required"
BOOTSTRAP = ["apt", "usr-is-merged", "?essential", "?priority(^required$)"]
URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)
UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package|Package) '?([^\s']+)'?(?: has no installation candidate)?$", re.MULTILINE
)
SOURCE_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(?P<suite>\S+)")
# fields of an index that publishing writes anew, or that point to what is not in the bundle
DROPPED_FIELDS = {"Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512", "Description-md5"}


@dataclass(frozen=True)
class Deb:
    """A Debian package as apt offers it; `stanza` is its entry in the index without place, size and hashes."""

    name: str
    version: str
    filename: str
    uri: str
    size: int
    sha256: str
    stanza: str


class PrivateApt:
    """apt with a root of its own below `root`, for the packages of one target."""

    def __init__(self, root: Path, target: Target) -> None:
        """Lay out the root; nothing is fetched yet."""
        process.require("apt-get", "apt")
        self.target = target
        self.root = root.absolute()
        self._env = settings.environment(APT_CONFIG=str(self.root / "apt.conf"), LC_ALL="C.UTF-8")
        for folder in FOLDERS:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        self._write_configuration()

    def update(self) -> None:
        """Fetch the indexes of every source that carries the target's release; one that fails is an error."""
        try:
            process.run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], env=self._env)
        except ProcessError as error:
            raise UnavailableError(
                f"a package source for {self.target.release} does not answer: {error.problems[0].reason}",
                where="apt",
                cure="make the source reachable, or take it out of this machine's package sources",
            ) from error

    def closure(self, names: Sequence[str], where: str) -> list[Deb]:
        """Return `names` and all that they depend on, from an empty system; `where` stands in the errors.

        Raises InputError that lists every unknown name, or what cannot be installed together.
        """
        command = ["apt-get", "install", "--yes", "--print-uris", "-o", "Acquire::ForceHash=sha256", *names]
        try:
            out = process.run(command, env=self._env)
        except ProcessError as error:
            raise _explained(error, self.target, where) from error
        found = {match["sha256"]: match for match in URI_LINE.finditer(out)}
        identities = {sha256: match["file"].removesuffix(".deb").split("_") for sha256, match in found.items()}
        stanzas = self._stanzas([f"{unquote(i[0])}:{i[2]}={unquote(i[1])}" for i in identities.values()])
        missing = [identities[sha256][0] for sha256 in found.keys() - stanzas.keys()]
        if missing:
            raise UnavailableError(
                f"apt offers no sha256 for: {', '.join(sorted(missing))}",
                where=where,
                cure="use a package source whose index has SHA256 fields",
            )
        return [
            Deb(
                name=unquote(identities[sha256][0]),
                version=unquote(identities[sha256][1]),
                # as in Debian's own archive, without the epoch
                filename=re.sub(r"_\d+:", "_", unquote(match["file"]), count=1),
                uri=match["uri"],
                size=int(match["size"]),
                sha256=sha256,
                stanza=stanzas[sha256],
            )
            for sha256, match in sorted(found.items(), key=lambda item: item[1]["file"])
        ]

    def bootstrap(self) -> list[Deb]:
        """Return what a root file system of the target is made of."""
        return self.closure(BOOTSTRAP, f"targets.{self.target.name}.bootstrap")

    def download(self, wanted: Sequence[tuple[str, str, Path]]) -> None:
        """Download with apt's own methods, proxies and credentials; `wanted` are (URI, sha256, path).

        Raises UnavailableError where a package is not there any more, ProcessError for anything else.
        """
        words = [word for uri, sha256, path in wanted for word in (uri, str(path), f"SHA256:{sha256}")]
        try:
            process.run([HELPER, "download-file", *words], env=self._env)
        except ProcessError as error:
            raise UnavailableError(
                f"a Debian package cannot be downloaded: {error.problems[0].reason}",
                where="apt",
                cure="when the source no longer has it, make a new lock; otherwise try again",
            ) from error

    def _write_configuration(self) -> None:
        """Write apt.conf, the sources of the target's release and the pins that keep all other origins out."""
        places = _machine_places()
        release = self.target.release
        lines = [
            line
            for line in process.run(["apt-config", "dump"]).splitlines()
            if line.startswith("Acquire::") and not line.startswith("Acquire::IndexTargets")
        ]
        lines += [
            f'Dir::Etc "{self.root}/etc";',
            f'Dir::Etc::parts "{self.root}/etc/empty";',
            f'Dir::Etc::main "{self.root}/etc/empty/apt.conf";',
            f'Dir::State "{self.root}/state";',
            f'Dir::State::status "{self.root}/state/status";',
            f'Dir::Cache "{self.root}/cache";',
            f'Dir::Log "{self.root}/log";',
            # indexes of packages are all that is read, so nothing else is fetched
            *(f'Acquire::IndexTargets::deb::{name}::DefaultEnabled "false";' for name in ("Translations", "DEP-11")),
            'APT::Sandbox::User "root";',
            f'APT::Architecture "{self.target.arch}";',
            f'APT::Architectures {{ "{self.target.arch}"; }};',
            'APT::Install-Recommends "false";',
            'APT::Install-Suggests "false";',
            *(f'Dir::Etc::{key} "{places[key]}";' for key in ("trusted", "trustedparts", "netrc", "netrcparts")),
        ]
        (self.root / "apt.conf").write_text("\n".join(lines) + "\n")
        kept = _sources(Path(places["sourcelist"]), Path(places["sourceparts"]), release)
        if not kept:
            raise UnavailableError(
                f"this machine has no package source that carries {release}",
                where=places["sourceparts"],
                cure=f"add a source with the suite {release}",
            )
        for old in (self.root / "etc/sources.list.d").iterdir():
            old.unlink()
        for name, text in kept.items():
            (self.root / "etc/sources.list.d" / name).write_text(text)
        # the first pin that fits counts
        pins = [*((origin, 500) for origin in self.target.pins), ("*", -1)]
        (self.root / "etc/preferences").write_text(
            "\n".join(f"Package: *\nPin: release {origin}\nPin-Priority: {priority}\n" for origin, priority in pins)
        )

    def _stanzas(self, names: Sequence[str]) -> dict[str, str]:
        """Return the index entry of each named version by the hash of its file."""
        text = process.run(["apt-cache", "show", *names], env=self._env) if names else ""
        found = {}
        for stanza in text.strip().split("\n\n"):
            sha256 = re.search(r"^SHA256: ([0-9a-f]{64})$", stanza, re.MULTILINE)
            if sha256:
                found[sha256[1]] = "".join(f"{name}:{value}\n" for name, value in fields(stanza))
        return found


def fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of an index entry that stay true wherever the package lies; values keep their line breaks."""
    for entry in re.split(r"\n(?![ \t])", stanza.strip()):
        name, _, value = entry.partition(":")
        if name not in DROPPED_FIELDS:
            yield name, value


def public_origin(uri: str) -> str:
    """Return an address without the user and password that it may carry."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _machine_places() -> dict[str, str]:
    """Return where this machine keeps its sources, keys and credentials for apt."""
    kinds = {
        "sourcelist": "f",
        "sourceparts": "d",
        "trusted": "f",
        "trustedparts": "d",
        "netrc": "f",
        "netrcparts": "d",
    }
    words = [word for key, kind in kinds.items() for word in (f"place_{key}", f"Dir::Etc::{key}/{kind}")]
    out = process.run(["apt-config", "shell", *words])
    return dict(re.findall(r"^place_(\w+)='(.*)'$", out, re.MULTILINE))


def _sources(main: Path, parts: Path, release: str) -> dict[str, str]:
    """Return the machine's sources that carry `release`, by the name of a file for them."""
    files = [main, *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    kept = {}
    for path in files:
        if not path.is_file():
            continue
        filtered = _stanza_sources if path.suffix == ".sources" else _line_sources
        if text := filtered(path.read_text(), release):
            kept["main.list" if path == main else path.name] = text
    return kept


def _line_sources(text: str, release: str) -> str:
    """Return the `deb` lines whose suite belongs to `release`."""
    matches = ((line, SOURCE_LINE.match(line)) for line in text.splitlines())
    return "".join(f"{line}\n" for line, match in matches if match and _carries(match["suite"], release))


def _stanza_sources(text: str, release: str) -> str:
    """Return the deb822 entries for `release`, cut down to its suites and to binary packages."""
    kept = []
    for stanza in re.split(r"\n\s*\n", text):
        entry = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        suites = [suite for suite in _words(entry, "Suites") if _carries(suite, release)]
        if suites and "deb" in _words(entry, "Types") and _words(entry, "Enabled") not in (["no"], ["false"]):
            kept.append(_with(_with(entry, "Suites", " ".join(suites)), "Types", "deb") + "\n")
    return "\n".join(kept)


def _field(name: str) -> re.Pattern[str]:
    return re.compile(rf"^{name}:(.*(?:\n[ \t].*)*)", re.MULTILINE | re.IGNORECASE)


def _words(entry: str, name: str) -> list[str]:
    match = _field(name).search(entry)
    return match[1].split() if match else []


def _with(entry: str, name: str, value: str) -> str:
    return _field(name).sub(f"{name}: {value}", entry)


def _carries(suite: str, release: str) -> bool:
    """Say whether a suite belongs to the release: itself, its updates, its security updates."""
    return suite == release or suite.startswith((f"{release}-", f"{release}/"))


def _explained(error: ProcessError, target: Target, where: str) -> PenstockError:
    """Return apt's refusal as an error in the manifest."""
    said = error.problems[0].reason
    if unknown := sorted(set(UNKNOWN.findall(said.replace("\n  ", "\n")))):
        return InputError(
            f"no such Debian package in {target.release}: {', '.join(unknown)}",
            where=where,
            cure="correct the name, or add a package source that has it to this machine",
        )
    return InputError(
        f"these Debian packages cannot be installed together: {said}",
        where=where,
        cure="put packages that conflict into groups of their own",
    )
