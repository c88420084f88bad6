"""A private apt root: the sources of a target and the machine's own options, but none of its packages and hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from common import files, process
from common.errors import InputError, IntegrityError, PenstockError, Problem, ProcessError, UnavailableError
from reservoir import settings
from reservoir.artifacts.debian import sources
from reservoir.download.cache import Cache
from reservoir.manifest import credentials
from reservoir.manifest.model import Manifest, Target
from reservoir.manifest.releases import RELEASES

# distributions without apt of their own often have it as a package; a container of Debian always does
ELSEWHERE = "or apt as this distribution packages it, or build the Debian targets in a container of Debian"
FOLDERS = (
    "state/lists/partial",
    "cache/archives/partial",
    "etc/sources.list.d",
    "etc/preferences.d",
    "etc/empty",
    "etc/keys",
    "etc/auth.conf.d",
    "log",
)
URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)
UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package|Package) '?([^\s']+)'?(?: has no installation candidate)?$", re.MULTILINE
)
NO_VERSION = re.compile(r"^E: Version '([^']+)' for '([^']+)' was not found$", re.MULTILINE)
EXPIRED = re.compile(r"Release file for (\S+) is expired")
UNSIGNED = re.compile(r"The repository '(\S+) [^']*' is not signed")
# how far metadata may be trusted is for the manifest to say, not for this machine
NOT_OF_THE_MACHINE = (
    "Acquire::IndexTargets",
    "Acquire::AllowInsecureRepositories",
    "Acquire::AllowWeakRepositories",
    "Acquire::AllowDowngradeToInsecureRepositories",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::Max-ValidTime",
)
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
    """apt with a root of its own below `root`, for the packages of one target of a manifest in `folder`."""

    def __init__(self, root: Path, target: Target, wanted: Manifest, folder: Path) -> None:
        """Lay out the root; nothing is fetched yet."""
        for program, package in (("apt-get", "apt"), ("gpgv", "gpgv")):
            process.require(program, package, ELSEWHERE)
        self.target = target
        self.root = root.absolute()
        self._env = settings.environment(APT_CONFIG=str(self.root / "apt.conf"), LC_ALL="C.UTF-8")
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        self._write_configuration(wanted, folder)

    def update(self) -> None:
        """Fetch the indexes of the target's sources.

        Raises IntegrityError where one is not signed by a known key or is past its time, and UnavailableError where
        one does not answer.
        """
        try:
            process.run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], env=self._env)
        except ProcessError as error:
            raise _unfit(error, self.target) from error

    def closure(self, names: Sequence[str], where: str, *, recommends: bool = False) -> list[Deb]:
        """Return `names` and all that they depend on, from an empty system; `where` stands in the errors.

        A name may be `name=version`, exact or with `*` at the end; `recommends` takes what packages recommend, too.
        Raises InputError that lists every unknown name, or what cannot be installed together.
        """
        options = ["-o", "Acquire::ForceHash=sha256", "-o", f"APT::Install-Recommends={str(recommends).lower()}"]
        command = [
            "apt-get",
            "install",
            "--yes",
            "--print-uris",
            *options,
            RELEASES[self.target.release].on_every_node,
            *names,
        ]
        try:
            out = process.run(command, env=self._env)
        except ProcessError as error:
            raise self._explained(error, where) from error
        found = {match["sha256"]: match for match in URI_LINE.finditer(out)}
        identities = {sha256: match["file"].removesuffix(".deb").split("_") for sha256, match in found.items()}
        stanzas = self._stanzas([f"{unquote(i[0])}:{i[2]}={unquote(i[1])}" for i in identities.values()])
        missing = [identities[sha256][0] for sha256 in found.keys() - stanzas.keys()]
        if missing:
            raise UnavailableError(
                f"apt offers no sha256 for: {', '.join(sorted(missing))}",
                where=where,
                hint="use a package source whose index has SHA256 fields",
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
        return self.closure(RELEASES[self.target.release].bootstrap, f"targets.{self.target.name}.bootstrap")

    def download(self, wanted: Sequence[tuple[str, str, Path]]) -> None:
        """Download with apt's own methods, proxies and credentials; `wanted` are (URI, sha256, path).

        Raises UnavailableError where a package is not there any more, ProcessError for anything else.
        """
        words = [word for uri, sha256, path in wanted for word in (uri, str(path), f"SHA256:{sha256}")]
        try:
            process.run([self._helper, "download-file", *words], env=self._env)
        except ProcessError as error:
            raise UnavailableError(
                f"a Debian package cannot be downloaded: {error.problems[0].reason}",
                where="apt",
                hint="when the source no longer has it, make a new lock; otherwise try again",
            ) from error

    def _explained(self, error: ProcessError, where: str) -> PenstockError:
        """Return apt's refusal as an error in the manifest."""
        release, said = self.target.release, error.problems[0].reason
        lines = said.replace("\n  ", "\n")
        if absent := NO_VERSION.findall(lines):
            return InputError(
                f"no such version in {release}: {', '.join(f'{name}={version}' for version, name in absent)}",
                where=where,
                hint="correct the version, or add a package source that has it",
            )
        if unknown := sorted(set(UNKNOWN.findall(lines))):
            return InputError.of(self._absent(unknown, where))
        return InputError(
            f"these Debian packages cannot be installed together: {said}",
            where=where,
            hint="put packages that conflict into groups of their own",
        )

    def _absent(self, names: Sequence[str], where: str) -> list[Problem]:
        """Return why packages are not there: others provide them, of which one has to be chosen, or nobody does."""
        provided = {name: found for name in names if (found := self._providers(name))}
        problems = [
            Problem(
                where,
                f"{name} is a virtual package, which several others provide",
                f"list one of: {', '.join(found)}",
            )
            for name, found in provided.items()
        ]
        if unknown := [name for name in names if name not in provided]:
            reason = f"no such Debian package in {self.target.release}: {', '.join(unknown)}"
            hint = "correct the name, or add a package source that has it to this machine"
            problems.append(Problem(where, reason, hint))
        return problems

    def _providers(self, name: str) -> list[str]:
        """Return the packages that provide a virtual one."""
        try:
            said = process.run(["apt-cache", "showpkg", name], env=self._env)
        except ProcessError:
            return []
        _, _, listed = said.partition("\nReverse Provides:")
        return sorted({line.split()[0] for line in listed.splitlines() if line.strip()})

    def _write_configuration(self, wanted: Manifest, folder: Path) -> None:
        """Write apt.conf, the target's sources and the preferences that choose among what they offer."""
        places = _machine_places()
        # distributions keep it in different places, but always beside the folder of apt's methods
        self._helper = Path(places["methods"]).parent / "apt-helper"
        lines = [
            line
            for line in process.run(["apt-config", "dump"]).splitlines()
            if line.startswith("Acquire::") and not line.startswith(NOT_OF_THE_MACHINE)
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
            'APT::Install-Suggests "false";',
            *(f'Dir::Etc::{key} "{places[key]}";' for key in ("trusted", "trustedparts", "netrc")),
            f'Dir::Etc::netrcparts "{self.root}/etc/auth.conf.d";',
        ]
        (self.root / "apt.conf").write_text("\n".join(lines) + "\n")
        kept = [replace(e, expires=e.suite not in wanted.allow_expired) for e in self._machine_entries(places)]
        for source in wanted.target_sources(self.target):
            entry = sources.of_manifest(source, folder, self.root / "etc/keys")
            kept.append(replace(entry, expires=source.name not in wanted.allow_expired))
        self._write_logins(kept, Path(places["netrcparts"]))
        public = [replace(entry, uris=" ".join(map(credentials.public, entry.uris.split()))) for entry in kept]
        (self.root / "etc/sources.list.d/target.sources").write_text("\n".join(entry.text() for entry in public))
        (self.root / "etc/preferences").write_text(_preferences(wanted, self.target))

    def _write_logins(self, entries: Sequence[sources.Entry], parts: Path) -> None:
        """Give apt the users and passwords of the sources apart from them, so that no address of a package has them."""
        folder = self.root / "etc/auth.conf.d"
        for old in folder.iterdir():
            old.unlink()
        for path in sorted(parts.glob("*.conf")):
            (folder / path.name).symlink_to(path)
        lines = [
            f"machine {login.place} login {login.user} password {login.password}\n"
            for login in credentials.logins(uri for entry in entries for uri in entry.uris.split())
        ]
        files.write(folder / "sources.conf", "".join(lines), 0o600)

    def _machine_entries(self, places: dict[str, str]) -> list[sources.Entry]:
        """Return the machine's own sources for the release; raises UnavailableError where it has none."""
        if not self.target.asks_machine:
            return []
        all_entries = sources.machine(Path(places["sourcelist"]), Path(places["sourceparts"]))
        entries = sources.for_release(all_entries, self.target.release)
        if not entries:
            raise UnavailableError(
                f"this machine has no package source that carries {self.target.release}",
                where=places["sourceparts"],
                hint=f"add a source with the suite {self.target.release}, or name one in the manifest's `sources`",
            )
        return entries

    def _stanzas(self, names: Sequence[str]) -> dict[str, str]:
        """Return the index entry of each named version by the hash of its file."""
        text = process.run(["apt-cache", "show", *names], env=self._env) if names else ""
        found = {}
        for stanza in text.strip().split("\n\n"):
            sha256 = re.search(r"^SHA256: ([0-9a-f]{64})$", stanza, re.MULTILINE)
            if sha256:
                found[sha256[1]] = "".join(f"{name}:{value}\n" for name, value in fields(stanza))
        return found


def private_apt(cache: Cache, target: Target, wanted: Manifest, folder: Path) -> PrivateApt:
    """Return apt for a target of the manifest in `folder`; its root stays in the cache."""
    return PrivateApt(cache.root / "apt" / f"{target.name}-{target.release}-{target.arch}", target, wanted, folder)


def fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of an index entry that stay true wherever the package lies; values keep their line breaks."""
    for entry in re.split(r"\n(?![ \t])", stanza.strip()):
        name, _, value = entry.partition(":")
        if name not in DROPPED_FIELDS:
            yield name, value


def _machine_places() -> dict[str, str]:
    """Return where this machine keeps its sources, keys, credentials and programs for apt."""
    kinds = {
        "sourcelist": "f",
        "sourceparts": "d",
        "trusted": "f",
        "trustedparts": "d",
        "netrc": "f",
        "netrcparts": "d",
    }
    words = [word for key, kind in kinds.items() for word in (f"place_{key}", f"Dir::Etc::{key}/{kind}")]
    words += ["place_methods", "Dir::Bin::methods/d"]
    out = process.run(["apt-config", "shell", *words])
    return dict(re.findall(r"^place_(\w+)='(.*)'$", out, re.MULTILINE))


def _preferences(wanted: Manifest, target: Target) -> str:
    """Return apt's preferences: version sets first, then the origins that may go in, and nothing else."""
    pins = [
        (name, f"version {pattern}", 1001)
        for one in wanted.target_version_sets(target)
        for name, pattern in one.packages.items()
        if pattern != "*"
    ]
    # the first of the general pins that fits counts
    pins += [("*", f'origin "{sources.host(source)}"', 500) for source in wanted.target_sources(target)]
    if target.asks_machine or target.origins:
        pins += [*(("*", f"release {origin}", 500) for origin in target.pins), ("*", "release *", -1)]
    return "\n".join(f"Package: {name}\nPin: {pin}\nPin-Priority: {priority}\n" for name, pin, priority in pins)


def _unfit(error: ProcessError, target: Target) -> PenstockError:
    """Return apt's refusal of a source as an error that names it."""
    said = error.problems[0].reason
    if expired := EXPIRED.search(said):
        return IntegrityError(
            f"its metadata is past the time until which it is valid: {said}",
            where=expired[1],
            hint="ask the source's keeper, or name the source or its suite in the manifest's `allow_expired`",
        )
    if unsigned := UNSIGNED.search(said):
        return IntegrityError(
            f"its metadata is not signed by a key that is known for it: {said}",
            where=unsigned[1],
            hint="give the source its right `keys`; for Debian's own, bring debian-archive-keyring up to date",
        )
    return UnavailableError(
        f"a package source for {target.release} does not answer: {said}",
        where="apt",
        hint="make the source reachable, or take it out of this machine's package sources",
    )
