"""Matches of packages and advisories, which are known faults: OSV's own rules, one finding a fault and package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cmp_to_key
from typing import Any

from reservoir.scan.osv import Advisory, Affected, Event, Range
from reservoir.scan.package_list import PackageList, Subject, covers, key
from reservoir.scan.severity import Rating, rate
from reservoir.scan.versions import Compare, base, comparison


@dataclass(frozen=True)
class Hit:
    """One advisory that speaks of one package; `doubt` says why it may not be so."""

    subject: Subject
    id: str
    names: frozenset[str]
    rating: Rating
    summary: str
    fixed: tuple[str, ...]
    doubt: str = ""


@dataclass
class Data:
    """What the advisories were: how many for each ecosystem, and the newest change of each database."""

    counts: dict[str, int] = field(default_factory=dict)
    newest: dict[str, datetime] = field(default_factory=dict)


def match(advisories: Iterable[Advisory], wanted: PackageList) -> tuple[list[Hit], Data]:
    """Return what was found and what was read; advisories pass one by one and only hits are kept."""
    by_name: dict[tuple[str, str], list[Subject]] = {}
    for subject in wanted.subjects:
        by_name.setdefault(key(subject.ecosystem, subject.name), []).append(subject)
    hits: list[Hit] = []
    data = Data()
    for advisory in advisories:
        packages = [(affected, affected.package) for affected in advisory.affected if affected.package]
        for ecosystem in {package.ecosystem for _, package in packages}:
            data.counts[ecosystem] = data.counts.get(ecosystem, 0) + 1
            newest = data.newest.get(base(ecosystem), advisory.modified)
            data.newest[base(ecosystem)] = max(newest, advisory.modified)
        if advisory.withdrawn:
            continue
        for affected, package in packages:
            for subject in by_name.get(key(package.ecosystem, package.name), ()):
                if covers(package.ecosystem, subject.ecosystem):
                    hits += _hit(advisory, affected, subject)
    return hits, data


def groups(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Put hits on one package together that are one fault under several names."""
    by_subject: dict[Subject, list[tuple[set[str], list[Hit]]]] = {}
    for hit in hits:
        known = by_subject.setdefault(hit.subject, [])
        same = [group for group in known if group[0] & hit.names]
        rest = [group for group in known if not group[0] & hit.names]
        names = set(hit.names).union(*(names for names, _ in same))
        by_subject[hit.subject] = [*rest, (names, [*(old for _, olds in same for old in olds), hit])]
    return [found for known in by_subject.values() for _, found in known]


def _hit(advisory: Advisory, affected: Affected, subject: Subject) -> list[Hit]:
    """Return the hit on a package, or nothing."""
    compare = comparison(subject.ecosystem)
    listed = any(_same(compare, subject.version, version) for version in affected.versions)
    doubt = ""
    if not listed:
        try:
            inside = [in_range(subject.version, events, compare) for events in affected.ranges]
        except ValueError as error:
            # a list of versions is complete; without one, a fault in doubt counts as a fault
            if affected.versions:
                return []
            doubt = f"versions cannot be compared: {error}"
        else:
            if not any(inside):
                return []
    fixed = [event.fixed for events in affected.ranges if _counts(events) for event in events.events if event.fixed]
    rating = rate(advisory, affected)
    summary = advisory.summary or (advisory.details or "").strip().partition("\n")[0][:200]
    names = frozenset(advisory.names)
    return [Hit(subject, advisory.id, names, rating, summary, tuple(dict.fromkeys(fixed)), doubt)]


def in_range(version: str, wanted: Range, compare: Compare) -> bool:
    """Say whether a version lies in a range, as OSV's schema defines it; raises ValueError for what is no version."""
    if not _counts(wanted):
        return False
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


def _same(compare: Compare, one: str, other: str) -> bool:
    """Say whether two versions are one; what is no version is only equal to itself."""
    try:
        return one == other or compare(one, other) == 0
    except ValueError:
        return False


def _counts(wanted: Range) -> bool:
    """Say whether a range is in the order of the ecosystem; commits and SemVer belong to others."""
    return wanted.type == "ECOSYSTEM"
