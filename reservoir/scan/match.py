"""Matches of packages and advisories, which are known faults: OSV's own rules, one finding a fault and package."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cmp_to_key
from typing import Any

from reservoir.scan.osv import Advisory, Affected, Event, Range
from reservoir.scan.package_list import PackageList, Subject, covers, key
from reservoir.scan.severity import Rating, rate
from reservoir.scan.versions import Compare

# of what looks like one export so many may be somebody's own: one in a thousand; in a small one a tenth, and no more
# than five, as it has few new ones in a fortnight
FEW, TENTH, OWN = 1000, 10, (2, 5)
# whose word on what, from which place, with or without the mark of an export
Group = tuple[str, str, bool]


@dataclass(frozen=True)
class Hit:
    """One advisory that speaks of one package; `doubt` says why it may not be so, `cves` are all that it is about."""

    subject: Subject
    id: str
    names: frozenset[str]
    cves: frozenset[str]
    rating: Rating
    summary: str
    fixed: tuple[str, ...]
    doubt: str = ""


@dataclass
class Data:
    """What the advisories were: when each of those on each ecosystem was changed, by the export that it is of.

    What was withdrawn says nothing, and is not counted.
    """

    times: dict[tuple[str, Group], array[float]] = field(default_factory=dict)

    def note(self, advisory: Advisory) -> None:
        """Count an advisory for every ecosystem that it speaks of."""
        for ecosystem in {affected.package.ecosystem for affected in advisory.affected if affected.package}:
            group = (advisory.database, advisory.place, advisory.is_exported)
            times = self.times.setdefault((ecosystem, group), array("d"))
            times.append(advisory.modified.timestamp())

    def count(self, ecosystem: str) -> int:
        """Return how many advisories speak of an ecosystem, such as `Debian:12`, by the exports that count."""
        return sum(map(len, self._of(ecosystem).values()))

    def newest(self, ecosystem: str) -> datetime:
        """Return when the greatest of its exports was changed last; raises KeyError where there is none.

        Files of one's own, whatever they are called, do not make an old export one of today: what is of another
        database, lies elsewhere or has no mark of an export does not count, however much it is. Where nothing tells
        them apart, the newest few do not count.
        """
        known = self._of(ecosystem)
        if not known:
            raise KeyError(ecosystem)
        most = max(map(len, known.values()))
        least, limit = OWN
        passed_over = min(max(least, min(limit, most // TENTH), most // FEW), most - 1)
        last = min(sorted(times)[-1 - passed_over] for times in known.values() if len(times) == most)
        return datetime.fromtimestamp(last, UTC)

    def _of(self, ecosystem: str) -> dict[Group, list[float]]:
        """Return when the advisories on an ecosystem were changed, by the export that they are of.

        Where some have the mark of an export, only these: others are somebody's own, and may be more. A few that
        have it beside far more that lack it are no export, but somebody's own.
        """
        found: dict[Group, list[float]] = {}
        for (advised, group), times in self.times.items():
            if covers(advised, ecosystem):
                found.setdefault(group, []).extend(times)
        marked = {group: times for group, times in found.items() if group[-1]}
        most = max(map(len, found.values()), default=0)
        few = max(OWN[1], most // FEW)
        return marked if any(len(times) > few or len(times) * TENTH > most for times in marked.values()) else found


def match(advisories: Iterable[Advisory], wanted: PackageList, now: datetime) -> tuple[list[Hit], Data]:
    """Return what was found and what was read; advisories pass one by one and only hits are kept."""
    by_name: dict[tuple[str, str], list[Subject]] = {}
    for subject in wanted.subjects:
        by_name.setdefault(key(subject.ecosystem, subject.name), []).append(subject)
    hits: list[Hit] = []
    data = Data()
    for advisory in advisories:
        if advisory.withdrawn and advisory.withdrawn <= now:
            continue
        data.note(advisory)
        for affected, package in [(affected, affected.package) for affected in advisory.affected if affected.package]:
            for subject in by_name.get(key(package.ecosystem, package.name), ()):
                if covers(package.ecosystem, subject.ecosystem):
                    hits += _hit(advisory, affected, subject, wanted.order(subject))
    return hits, data


def groups(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Put hits on one package together that are one fault under several names.

    One fault is what speaks of the same CVEs, and what names all of that directly. Names lead no further: an advisory
    on two faults does not make these one, or an exception for the lesser would hold for the greater.
    """
    by_subject: dict[Subject, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: (not hit.cves, hit.id)):
        by_subject.setdefault(hit.subject, []).append(hit)
    return [group for of_one in by_subject.values() for group in _faults(of_one)]


def _faults(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Return the groups of one package's hits, of which those that speak of CVEs come first."""
    known: list[list[Hit]] = []
    by_cves: dict[frozenset[str], list[Hit]] = {}
    # a group is found by the names of its first hit, without a look at every other group
    by_name: dict[str, list[int]] = {}
    for hit in hits:
        if hit.cves:
            group = by_cves.get(hit.cves)
        else:
            near = sorted({place for name in hit.names for place in by_name.get(name, ())})
            group = next(
                (known[place] for place in near if all(hit.names & other.names for other in known[place])), None
            )
        if group is not None:
            group.append(hit)
            continue
        for name in hit.names:
            by_name.setdefault(name, []).append(len(known))
        known.append([hit])
        if hit.cves:
            by_cves[hit.cves] = known[-1]
    return known


def _hit(advisory: Advisory, affected: Affected, subject: Subject, compare: Compare) -> list[Hit]:
    """Return the hit on a package, or nothing."""
    inside, doubt = _inside(affected, subject.version, compare)
    if not inside:
        return []
    fixed = [event.fixed for events in _ordered(affected) for event in events.events if event.fixed]
    rating = rate(advisory, affected)
    summary = advisory.summary or (advisory.details or "").strip().partition("\n")[0][:200]
    names, cves = frozenset(advisory.names), frozenset(advisory.cves)
    return [Hit(subject, advisory.id, names, cves, rating, summary, tuple(dict.fromkeys(fixed)), doubt)]


def _inside(affected: Affected, version: str, compare: Compare) -> tuple[bool, str]:
    """Say whether a version has a fault, and what makes that doubtful; what cannot be judged counts as a fault."""
    if any(_same(compare, version, listed) for listed in affected.versions):
        return True, ""
    ordered = _ordered(affected)
    if not ordered and not affected.versions:
        return True, "it names commits, and no versions" if affected.ranges else "it names no versions"
    if not ordered and not any(_readable(compare, listed) for listed in affected.versions):
        return True, "none of its versions can be compared"
    doubt = ""
    for events in ordered:
        begun = any(event.introduced is not None for event in events.events)
        # what does not say where the fault came may have had it always
        whole = events if begun else Range(type=events.type, events=[Event(introduced="0"), *events.events])
        try:
            if in_range(version, whole, compare):
                if begun:
                    return True, ""
                doubt = "a range does not say where the fault came"
        except ValueError as error:
            # another range may still hit for certain
            doubt = f"versions cannot be compared: {error}"
    return bool(doubt), doubt


def _ordered(affected: Affected) -> list[Range]:
    """Return the ranges whose versions have an order: the ecosystem's, else those that say SemVer.

    These stand in words of the ecosystem as well, and are held against its order; commits have none.
    """
    kinds = [[events for events in affected.ranges if events.type == kind] for kind in ("ECOSYSTEM", "SEMVER")]
    return kinds[0] or kinds[1]


def in_range(version: str, wanted: Range, compare: Compare) -> bool:
    """Say whether a version lies in a range, as OSV's schema defines it; raises ValueError for what is no version."""
    limits = [event.limit for event in wanted.events if event.limit is not None]
    if limits and not any(limit == "*" or compare(version, limit) < 0 for limit in limits):
        return False
    inside = False
    for event in sorted((event for event in wanted.events if event.limit is None), key=_order(compare)):
        if event.introduced is not None:
            inside = inside or event.introduced == "0" or compare(version, event.introduced) >= 0
        elif event.fixed is not None:
            inside = inside and compare(version, event.fixed) < 0
        elif event.last_affected is not None:
            inside = inside and compare(version, event.last_affected) <= 0
    return inside


def _order(compare: Compare) -> Callable[[Event], Any]:
    """Return the key that sorts events by version; `0` is before every version.

    Where two stand at one version, the last that has the fault counts after the first that has it.
    """

    def order(one: Event, other: Event) -> int:
        zeros = (one.introduced == "0") - (other.introduced == "0")
        at = -zeros if zeros or one.introduced == "0" else compare(one.version, other.version)
        return at or (one.last_affected is not None) - (other.last_affected is not None)

    return cmp_to_key(order)


def _readable(compare: Compare, version: str) -> bool:
    """Say whether a version is one in the ecosystem's order."""
    try:
        return compare(version, version) == 0
    except ValueError:
        return False


def _same(compare: Compare, one: str, other: str) -> bool:
    """Say whether two versions are one; what is no version is only equal to itself."""
    try:
        return one == other or compare(one, other) == 0
    except ValueError:
        return False
