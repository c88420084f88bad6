"""Sources of a target's RPM packages: those of the manifest, and this machine's own `.repo` files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, MissingSectionHeaderError, ParsingError
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pysequoia import Cert

from common.errors import InputError, UnavailableError
from reservoir.artifacts.kind import Resolving
from reservoir.manifest import credentials
from reservoir.manifest.model import MACHINES, Source, Target
from reservoir.signing import openpgp

# what changes the choice of packages, or how they are fetched, where it is not as it is without; dnf would follow it
NOT_FOLLOWED = {
    "exclude": ("",),
    "excludepkgs": ("",),
    "includepkgs": ("",),
    "priority": ("", "99"),
    "module_hotfixes": ("", "0", "false", "no", "off"),
    "proxy": ("", "_none_"),
    "sslcacert": ("",),
    "sslclientcert": ("",),
    "sslclientkey": ("",),
}
YES = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Repository:
    """A repository below `address`, whose packages one of `keys` signed; `signed` says that its metadata must be, too.

    `address` has the user and password that the repository asks for, if any; `url` is the same without them.
    """

    name: str
    address: str
    keys: tuple[Cert, ...]
    signed: bool

    @property
    def url(self) -> str:
        """Return the address as it may be told."""
        return credentials.public(self.address)


def of_target(resolving: Resolving, target: Target, system: Path = Path("/")) -> list[Repository]:
    """Return the repositories of a target; `system` is where this machine's own configuration lies.

    Raises UnavailableError where there are none, InputError where one cannot be used.
    """
    found = [_of_manifest(source, resolving) for source in resolving.manifest.target_sources(target)]
    if target.asks_machine:
        machine = [_of_section(*section, system) for section in _sections(system, target)]
        if not machine:
            raise UnavailableError(
                f"this machine has no package source for the RPM target {target.name}",
                where=str(system / "etc/yum.repos.d"),
                hint="list one under the manifest's `sources`, and name it in the target's",
            )
        found += machine
    return found


def addresses(targets: Iterable[Target], system: Path = Path("/")) -> list[str]:
    """Return the addresses of this machine's repositories for those of the targets that ask it for RPM packages.

    They have the users and passwords that the repositories ask for. Raises InputError where a file cannot be read.
    """
    return [
        _address(urls[0], values)
        for target in targets
        if target.os == "rpm" and target.asks_machine
        for _, values, _ in _sections(system, target)
        if (urls := _words(values, "baseurl"))
    ]


def _of_manifest(source: Source, resolving: Resolving) -> Repository:
    keys: list[Cert] = []
    for name in source.keys:
        keys += _keys(resolving.path.parent / name, f"source {source.name}")
    return Repository(source.name, f"{source.url.rstrip('/')}/", tuple(keys), not source.unsigned_metadata)


def _sections(system: Path, target: Target) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Yield the enabled repositories of this machine as (name, values, where they stand).

    The values have the target's words for release and architecture.
    """
    words = {
        path.name: path.read_text().strip()
        for folder in ("etc/yum/vars", "etc/dnf/vars")
        for path in sorted((system / folder).glob("*"))
    }
    words |= {"releasever": target.release, "basearch": MACHINES[target.arch], "arch": MACHINES[target.arch]}
    for path in sorted((system / "etc/yum.repos.d").glob("*.repo")):
        config = ConfigParser(interpolation=None, strict=False)
        try:
            config.read_string(path.read_text())
        except ParsingError as error:
            # the parser would show the line, and a password may stand in it
            number = error.lineno if isinstance(error, MissingSectionHeaderError) else error.errors[0][0]
            raise InputError(f"line {number} cannot be read", where=str(path), hint="mend the file") from error
        for name in config.sections():
            values = {key: _filled(value, words) for key, value in config[name].items()}
            if values.get("enabled", "1").lower() in YES:
                yield name, values, f"{path}: {name}"


def _of_section(name: str, values: Mapping[str, str], where: str, system: Path) -> Repository:
    """Return the repository of one section of a `.repo` file; raises InputError for keys that nobody here follows."""
    if unheard := [key for key, plain in NOT_FOLLOWED.items() if values.get(key, "").strip().lower() not in plain]:
        raise InputError(
            f"it sets {', '.join(unheard)}, which a lock does not follow",
            where=where,
            hint="take it out; or list the source under the manifest's `sources`, and bind versions by `version_sets`",
        )
    urls, files = _words(values, "baseurl"), _words(values, "gpgkey")
    if not urls:
        raise InputError("it names no baseurl, and lists of mirrors are not read", where=where, hint="add a baseurl")
    if not files or not all(file.startswith("file:") for file in files):
        raise InputError(
            "its keys do not lie on this machine",
            where=where,
            hint="put the source's public keys into a file, and name it as gpgkey=file://…",
        )
    keys: list[Cert] = []
    for file in files:
        keys += _keys(system / unquote(urlsplit(file).path).lstrip("/"), where)
    address = f"{_address(urls[0], values).rstrip('/')}/"
    return Repository(name, address, tuple(keys), values.get("repo_gpgcheck", "0").lower() in YES)


def _words(values: Mapping[str, str], key: str) -> list[str]:
    return values.get(key, "").replace(",", " ").split()


def _address(url: str, values: Mapping[str, str]) -> str:
    """Return the address with the section's own user and password, which go before those that it carries itself."""
    user = values.get("username", "")
    if not user:
        return url
    parts = urlsplit(credentials.public(url))
    login = f"{quote(user, safe='')}:{quote(values.get('password', ''), safe='')}"
    return parts._replace(netloc=f"{login}@{parts.netloc}").geturl()


def _filled(value: str, words: Mapping[str, str]) -> str:
    """Replace `$name` and `${name}`; unknown ones stay, as with dnf."""
    return re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda m: words.get(m[1] or m[2], m[0]), value)


def _keys(path: Path, where: str) -> list[Cert]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"the key {path.name} cannot be read: {error.strerror}",
            where=where,
            hint="put the file with the source's public keys there",
        ) from error
    return openpgp.certificates(content, f"{where}: {path}")
