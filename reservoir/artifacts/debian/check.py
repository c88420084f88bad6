"""Checks of Debian packages: what stands between them and their publication."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from common.errors import IntegrityError, Problem
from reservoir.artifacts.debian import relations
from reservoir.artifacts.debian.pool import field, pool_path
from reservoir.artifacts.kind import AGAIN, Find, one_each, too_long
from reservoir.contents import version_sets
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.bundle import Bundle

FIELD = re.compile(r"([!-9;-~]+):(?:[ \t].*)?")
# what a publication says itself
OURS = {"filename", "size", "md5sum", "sha1", "sha256", "sha512"}
MD5 = re.compile(r"\s*[0-9a-fA-F]{32}\s*")
# bytes of one entry; apt holds an index with one of a MiB to be damaged, and a publication adds place, size and hash
LARGEST = (1 << 20) - (64 << 10)
ONE_SOURCE = "publish bundles that were made from one source"


def check(bundles: Sequence[Bundle], find: Find) -> Iterator[Problem]:  # noqa: ARG001 - as every kind
    """Yield each entry that no index could hold, two files of one name, and version sets that contradict each other."""
    unfit = {deb.filename: reason for deb in _debs(bundles) if (reason := fault(deb))}
    yield from (Problem(filename, reason, AGAIN) for filename, reason in unfit.items())
    for release, by_arch in served(bundles).items():
        fit = {arch: [deb for deb in debs if deb.filename not in unfit] for arch, debs in by_arch.items()}
        yield from pool(release, fit)[1]
        for arch in by_arch:
            yield from version_sets.contradictions(bundles, release, arch)


def served(bundles: Sequence[Bundle]) -> dict[str, dict[str, list[DebianArtifact]]]:
    """Return the packages of some bundles by release and architecture."""
    found: dict[str, dict[str, list[DebianArtifact]]] = {}
    for bundle in bundles:
        for target in bundle.targets:
            if target.os == "debian":
                debs = found.setdefault(target.release, {}).setdefault(target.arch, [])
                debs += [deb for deb in bundle.of_kind(DebianArtifact) if target.name in deb.targets]
    return found


def pool(
    release: str, by_arch: Mapping[str, Sequence[DebianArtifact]]
) -> tuple[dict[PurePosixPath, DebianArtifact], list[Problem]]:
    """Return the packages of one release by their place, and the problems of those that are not one package to apt.

    They lie in one pool for all architectures, and in the index of each one a name has a version once, as dpkg compares
    them.
    """
    found, problems = one_each(
        (deb for debs in by_arch.values() for deb in debs), lambda deb: place(release, deb), _two
    )
    for debs in by_arch.values():
        problems += one_each(debs, lambda deb: (deb.name, _compared(deb.version)), _two)[1]
    return found, list(dict.fromkeys(problems))


def _compared(version: str) -> tuple[str, str, str]:
    """Return what all versions that dpkg holds equal have in common, such as `1.0-1` and `0:1.00-01`."""
    epoch, _, rest = version.rpartition(":")
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return epoch.lstrip("0"), _numbered(upstream), _numbered(revision)


def _numbered(text: str) -> str:
    """Return a part of a version with its numbers as they count: without zeros ahead, and at the end none is zero."""
    return " ".join(piece.lstrip("0") for piece in re.split("([0-9]+)", text)).rstrip()


def _two(deb: DebianArtifact) -> Problem:
    return Problem(deb.filename, f"two different files call themselves {deb.name} {deb.version}", ONE_SOURCE)


def place(release: str, deb: DebianArtifact) -> PurePosixPath:
    """Return where a package lies; raises IntegrityError where its entry names a source that is none."""
    return pool_path(release, field(deb.metadata.stanza, "Source") or deb.name, deb.filename)


def fault(deb: DebianArtifact) -> str:
    """Return why an index could not hold the entry of a package, or nothing."""
    return next(_faults(deb), "")


def _faults(deb: DebianArtifact) -> Iterator[str]:
    stanza = deb.metadata.stanza
    if not stanza.endswith("\n"):
        yield "its entry ends in the middle of a line"
    fields: list[tuple[str, list[str]]] = []
    for line in stanza.removesuffix("\n").split("\n"):
        found = FIELD.fullmatch(line)
        if not line.strip():
            yield "its entry has a blank line, where the next entry would begin"
        elif found:
            fields.append((found[1].lower(), [line.partition(":")[2]]))
        elif line[0] not in " \t" or not fields:
            yield f"its entry has a line that is no field: {line[:60]!r}"
        else:
            fields[-1][1].append(line)
    if (size := len(stanza.encode())) > LARGEST:
        longest = max(fields, key=lambda one: sum(map(len, one[1])), default=("no field", []))[0]
        yield f"its entry has {size} bytes, most of them in {longest}, and {LARGEST} are allowed"
        return
    names = [name for name, _ in fields]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        yield f"its entry says {', '.join(twice)} twice"
    if ours := sorted(OURS.intersection(names)):
        yield f"its entry says {', '.join(ours)}, which the publication does"
    if (said := (field(stanza, "Package"), field(stanza, "Version"))) != (deb.name, deb.version):
        yield f"its entry is of {' '.join(said)}, not of {deb.name} {deb.version}"
    for name, lines in fields:
        yield from _unread(name, "\n".join(lines))
    try:
        yield from filter(None, map(too_long, place("any", deb).parts))
    except IntegrityError as error:
        yield error.problems[0].reason


def _unread(name: str, value: str) -> Iterator[str]:
    """Yield why apt cannot read the value of a field."""
    if not relations.readable(name, value):
        yield f"its entry has a {name} that apt cannot read: {value.strip()[:60]!r}"
    if name == "description-md5" and not MD5.fullmatch(value):
        yield f"its entry has a {name} that is no MD5: {value.strip()[:60]!r}"


def _debs(bundles: Sequence[Bundle]) -> Iterator[DebianArtifact]:
    return (deb for bundle in bundles for deb in bundle.of_kind(DebianArtifact))
