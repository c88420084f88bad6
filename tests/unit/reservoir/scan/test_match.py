from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from reservoir.contents.artifact import Artifact
from reservoir.contents.target import TargetRecord
from reservoir.scan.match import Hit, groups, in_range, match
from reservoir.scan.osv import Advisory, Range
from reservoir.scan.package_list import PackageList, Subject, package_list
from reservoir.scan.versions import comparison
from tests.unit.reservoir.scan.advisories import NOW, TODAY, URLLIB3, advisory, bundle, deb, package


def hits(artifact: Artifact, *advisories: dict[str, Any]) -> list[Hit]:
    found, _ = match((Advisory.model_validate(entry) for entry in advisories), package_list(bundle(artifact)), NOW)
    return found


def affected(version: str, *events: dict[str, str], ecosystem: str = "PyPI") -> bool:
    wanted = Range.model_validate({"type": "ECOSYSTEM", "events": events})
    return in_range(version, wanted, comparison(ecosystem))


@pytest.mark.parametrize(
    ("version", "inside"),
    [("0.9", False), ("1.0", True), ("1.4", True), ("1.5", False), ("2.0", True), ("2.3", True), ("2.4", False)],
)
def test_a_fault_comes_and_goes_and_comes_again(version: str, inside: bool) -> None:
    # events may stand in any order
    events = ({"last_affected": "2.3"}, {"introduced": "2.0"}, {"fixed": "1.5"}, {"introduced": "1.0"})
    assert affected(version, *events) is inside


@pytest.mark.parametrize(("version", "inside"), [("0.0.dev0", True), ("99", True)])
def test_zero_is_before_every_version(version: str, inside: bool) -> None:
    assert affected(version, {"introduced": "0"}) is inside


@pytest.mark.parametrize(("version", "inside"), [("1.0", True), ("1.0.post1", False), ("0.9", False)])
def test_a_single_version_is_first_and_last(version: str, inside: bool) -> None:
    assert affected(version, {"last_affected": "1.0"}, {"introduced": "1.0"}) is inside


@pytest.mark.parametrize(("version", "inside"), [("1.9", True), ("2.0", False), ("3.0", False)])
def test_a_limit_ends_the_range(version: str, inside: bool) -> None:
    assert affected(version, {"introduced": "1.0"}, {"limit": "2.0"}) is inside


def test_a_fault_without_an_end_is_still_there() -> None:
    assert affected("5:1.0-1", {"introduced": "0"}, ecosystem="Debian:12")


@pytest.mark.parametrize(("version", "found"), [("1.0", True), ("1.9.9", True), ("2.0.0", False)])
def test_ranges_of_semver_alone_are_held_against_the_order_of_the_ecosystem(version: str, found: bool) -> None:
    advised = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, {"fixed": "2.0.0"}, kind="SEMVER")
    assert bool(hits(package("python", "demo", version), advised)) is found


def test_what_says_commits_alone_or_nothing_is_a_fault_in_doubt() -> None:
    wheel = package("python", "demo", "1.0")
    (hit,) = hits(wheel, advisory("A-1", "PyPI", "demo", {"introduced": "0"}, {"fixed": "4d2f"}, kind="GIT"))
    assert hit.doubt == "it names commits, and no versions"
    (hit,) = hits(wheel, advisory("A-1", "PyPI", "demo"))
    assert hit.doubt == "it names no versions"
    # a list beside the commits is complete
    listed = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, kind="GIT", versions=("0.9",))
    assert not hits(wheel, listed)


def test_ranges_of_the_ecosystem_decide_beside_others() -> None:
    both = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, {"fixed": "0.9"})
    both["affected"][0]["ranges"].append({"type": "SEMVER", "events": [{"introduced": "0"}]})
    assert not hits(package("python", "demo", "1.0"), both)


@pytest.mark.parametrize(("version", "found"), [("1.0", True), ("1.0.0", True), ("1.0+local.1", True), ("1.1", False)])
def test_listed_versions_count_by_themselves(version: str, found: bool) -> None:
    assert bool(hits(package("python", "demo", version), advisory("A-1", "PyPI", "demo", versions=("1.0",)))) is found


def test_names_of_python_packages_are_compared_as_pypi_does() -> None:
    assert hits(package("python", "ruamel-yaml", "0.1"), advisory("A-1", "PyPI", "Ruamel.YAML", {"introduced": "0"}))


def test_withdrawn_advisories_do_not_count() -> None:
    gone = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z")
    assert not hits(package("python", "demo", "1.0"), gone)


def test_a_debian_package_is_known_by_its_source_and_the_version_of_that() -> None:
    advised = advisory("DSA-1", "Debian:12", "openssl", {"introduced": "0"}, {"fixed": "3.0.11-1~deb12u2"})
    assert hits(deb("libssl3", "3.0.11-1~deb12u1", source="openssl"), advised)
    assert not hits(deb("libssl3", "3.0.11-1~deb12u2", source="openssl"), advised)
    # rebuilt without a change of the source: its own version is the greater one
    assert hits(deb("libssl3", "3.0.11-1~deb12u2+b1", source="openssl (3.0.11-1~deb12u1)"), advised)
    # a binary package that merely has the name of the source
    assert not hits(deb("openssl", "1.0-1", source="other"), advised)


def test_an_epoch_is_newer_than_any_version_without_one() -> None:
    advised = advisory("DSA-2", "Debian:12", "acl", {"introduced": "0"}, {"fixed": "1:1.0-1"})
    assert hits(deb("acl", "99.0-1"), advised)
    assert not hits(deb("acl", "1:1.0-1"), advised)


@pytest.mark.parametrize(
    ("ecosystem", "found"), [("Debian:12", True), ("Debian:13", False), ("Debian", True), ("Debian:1", False)]
)
def test_an_advisory_speaks_of_its_release_only(ecosystem: str, found: bool) -> None:
    assert bool(hits(deb("acl", "1.0-1"), advisory("D-1", ecosystem, "acl", {"introduced": "0"}))) is found


def test_one_file_for_two_releases_is_held_against_both() -> None:
    both = deb("tzdata", "2026a-0+deb12u1", "debian12", "debian13")
    advised = advisory("D-1", "Debian:13", "tzdata", {"introduced": "0"}, {"fixed": "2026b-0+deb13u1"})
    (hit,) = hits(both, advised)
    assert hit.subject.ecosystem == "Debian:13"


@pytest.mark.parametrize("name", ["openssl-libs", "openssl"])
@pytest.mark.parametrize("ecosystem", ["Rocky Linux:9", "Rocky Linux:9::baseos"])
def test_an_rpm_is_known_by_its_own_name_and_by_its_source(name: str, ecosystem: str) -> None:
    rpm = package("rpm", "openssl-libs", "1:3.0.7-27.el9", "rocky9", source_rpm="openssl-3.0.7-27.el9.src.rpm")
    assert hits(rpm, advisory("RLSA-1", ecosystem, name, {"introduced": "0"}, {"fixed": "1:3.0.7-28.el9_4"}))
    assert not hits(rpm, advisory("RLSA-1", ecosystem, name, {"introduced": "0"}, {"fixed": "1:3.0.7-27.el9"}))


@pytest.mark.parametrize(
    ("epoch", "found"), [({"source_epoch": "4"}, False), ({"source_epoch": "0"}, True), ({}, True)]
)
def test_the_epoch_of_a_source_is_what_its_repository_says(epoch: dict[str, str], found: bool) -> None:
    rpm = package("rpm", "perl-Errno", "1.30-480.el9", "rocky9", source_rpm="perl-5.32.1-480.el9.src.rpm", **epoch)
    advised = advisory("RLSA-1", "Rocky Linux:9", "perl", {"introduced": "0"}, {"fixed": "4:5.32.1-480.el9"})
    assert bool(hits(rpm, advised)) is found
    newer = package("rpm", "demo-libs", "5:1.0-1", "rocky9", source_rpm="demo-1.0-1.src.rpm", source_epoch="0")
    assert hits(newer, advisory("RLSA-2", "Rocky Linux:9", "demo", {"introduced": "0"}, {"fixed": "1.1-1"}))


def test_a_range_that_cannot_be_ordered_counts_as_a_fault_in_doubt() -> None:
    (hit,) = hits(package("python", "demo", "1.0"), advisory("A-1", "PyPI", "demo", {"introduced": "first release"}))
    assert "cannot be compared" in hit.doubt


@pytest.mark.parametrize("version", ["1.0", "9.0"])
def test_an_ecosystem_whose_order_nobody_knows_is_a_fault_in_doubt(version: str) -> None:
    wanted = PackageList({Subject("Haiku:1", "demo", version): []}, [])
    advised = advisory("A-1", "Haiku:1", "demo", {"introduced": "0"}, {"fixed": "2.0"})
    ((hit,), _) = match([Advisory.model_validate(advised)], wanted, NOW)
    assert "versions cannot be compared: nobody knows" in hit.doubt


@pytest.mark.parametrize(("version", "found"), [("1.9-1.el8", True), ("1.10-1.el8", False)])
@pytest.mark.parametrize("ecosystem", ["CloudLinux:8", "MyLinux:1"])
def test_packages_of_an_rpm_target_have_the_order_of_rpm_whatever_its_ecosystem_is_called(
    ecosystem: str, version: str, found: bool
) -> None:
    made = bundle(package("rpm", "demo", version, "own8"))
    own = TargetRecord(name="own8", os="rpm", release="8", arch="amd64", osv=ecosystem)
    advised = Advisory.model_validate(advisory("A-1", ecosystem, "demo", {"introduced": "0"}, {"fixed": "1.10-1.el8"}))
    got, _ = match([advised], package_list(made.model_copy(update={"targets": [own]})), NOW)
    assert [hit.doubt for hit in got] == ([""] if found else [])


@pytest.mark.parametrize("event", [{"fixed": "2.0"}, {"last_affected": "1.9"}, {"limit": "2.0"}])
def test_a_range_without_a_beginning_counts_as_a_fault_in_doubt(event: dict[str, str]) -> None:
    advised = advisory("A-1", "PyPI", "demo", event)
    (hit,) = hits(package("python", "demo", "1.0"), advised)
    assert hit.doubt == "a range does not say where the fault came"
    assert not hits(package("python", "demo", "2.0"), advised)


def test_a_list_of_versions_does_not_hide_a_range_that_cannot_be_ordered() -> None:
    advised = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, {"fixed": "2004d"}, versions=("2.0",))
    (hit,) = hits(package("python", "demo", "1.0"), advised)
    assert "cannot be compared" in hit.doubt
    (listed,) = hits(package("python", "demo", "2.0"), advised)
    assert not listed.doubt


@pytest.mark.parametrize("versions", [(), ("0.9",)])
@pytest.mark.parametrize("unreadable_first", [True, False])
def test_a_range_that_cannot_be_ordered_does_not_hide_one_that_hits(
    versions: tuple[str, ...], unreadable_first: bool
) -> None:
    advised = advisory("A-1", "PyPI", "demo", {"introduced": "1.0"}, {"fixed": "2.0"}, versions=versions)
    unreadable = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2004d"}]}
    advised["affected"][0]["ranges"].insert(0 if unreadable_first else 1, unreadable)
    (hit,) = hits(package("python", "demo", "1.5"), advised)
    assert not hit.doubt


def test_aliases_are_one_fault() -> None:
    found = groups(hits(package("python", "urllib3", "1.24.3"), *URLLIB3))
    assert sorted(sorted(hit.id for hit in group) for group in found) == [
        ["GHSA-q2q7-5pp4-w6pg"],
        ["GHSA-wqvq-5m8c-6g24", "PYSEC-2020-148"],
    ]
    assert not hits(package("python", "urllib3", "1.26.5"), *URLLIB3)


def test_an_advisory_on_two_faults_does_not_make_them_one() -> None:
    chain = [
        advisory("A-1", "PyPI", "demo", {"introduced": "0"}, aliases=["CVE-2026-1"]),
        advisory("B-1", "PyPI", "demo", {"introduced": "0"}, aliases=["CVE-2026-2"]),
        advisory("C-1", "PyPI", "demo", {"introduced": "0"}, aliases=["CVE-2026-1", "CVE-2026-2"]),
        # names lead no further than to what names them
        advisory("D-1", "PyPI", "demo", {"introduced": "0"}, aliases=["X-1"]),
        advisory("E-1", "PyPI", "demo", {"introduced": "0"}, aliases=["X-1", "X-2"]),
        advisory("F-1", "PyPI", "demo", {"introduced": "0"}, aliases=["X-2"]),
        advisory("G-1", "PyPI", "demo", {"introduced": "0"}, aliases=["A-1"]),
    ]
    found = groups(hits(package("python", "demo", "1.0"), *chain))
    assert sorted(sorted(hit.id for hit in group) for group in found) == [
        ["A-1", "G-1"], ["B-1"], ["C-1"], ["D-1", "E-1"], ["F-1"],
    ]  # fmt: skip


def test_very_many_faults_of_one_package_are_told_apart_at_once() -> None:
    advised = [
        advisory(f"D-{n}", "PyPI", "demo", {"introduced": "0"}, upstream=[f"CVE-2026-{n}"] if n % 2 else [])
        for n in range(6000)
    ]
    found = hits(package("python", "demo", "1.0"), *advised)
    started = time.process_time()
    assert len(groups(found)) == 6000
    assert time.process_time() - started < 5


def test_a_distributions_word_on_one_upstream_fault_is_that_fault() -> None:
    advised = [
        advisory("DEBIAN-CVE-2026-1", "Debian:12", "acl", {"introduced": "0"}, upstream=["CVE-2026-1"]),
        advisory("DSA-9-1", "Debian:12", "acl", {"introduced": "0"}, upstream=["CVE-2026-1", "CVE-2026-2"]),
    ]
    found = groups(hits(deb("acl", "1.0-1"), *advised))
    assert [sorted(group[0].names) for group in found] == [["CVE-2026-1", "DEBIAN-CVE-2026-1"], ["DSA-9-1"]]
    assert [sorted(group[0].cves) for group in found] == [["CVE-2026-1"], ["CVE-2026-1", "CVE-2026-2"]]


@pytest.mark.parametrize(("day", "count"), [("2026-03-09", 0), ("2099-01-01", 1)])
def test_what_is_withdrawn_later_still_counts(day: str, count: int) -> None:
    advised = advisory("A-1", "PyPI", "demo", {"introduced": "0"}, withdrawn=f"{day}T00:00:00Z")
    assert len(hits(package("python", "demo", "1.0"), advised)) == count


@pytest.mark.parametrize(("versions", "doubtful"), [(("banana",), True), (("banana", "2.0"), False)])
def test_a_list_without_any_version_is_a_fault_in_doubt(versions: tuple[str, ...], doubtful: bool) -> None:
    found = hits(package("python", "demo", "1.0"), advisory("A-1", "PyPI", "demo", versions=versions))
    assert [hit.doubt for hit in found] == (["none of its versions can be compared"] if doubtful else [])


@pytest.mark.parametrize(("fresh", "today"), [(1, False), (5, False), (6, True)])
def test_a_few_of_very_many_do_not_make_all_of_them_new(fresh: int, today: bool) -> None:
    old = [
        Advisory.model_validate(advisory(f"A-{n}", "PyPI", "x", modified="2025-01-01T00:00:00Z")) for n in range(2000)
    ]
    new = [Advisory.model_validate(advisory(f"A-new-{n}", "PyPI", "x")) for n in range(fresh)]
    _, data = match([*old, *new], PackageList({}, []), NOW)
    assert (data.newest("PyPI") == datetime.fromisoformat(TODAY)) is today


def exported(count: int, name: str, day: str, *, marked: bool) -> list[Advisory]:
    found = []
    for number in range(count):
        entry = advisory(f"{name}-{number}", "PyPI", "x", modified=day)
        entry["affected"][0]["database_specific"] = {"source": "made"} if marked else {}
        found.append(Advisory.model_validate(entry))
    return found


@pytest.mark.parametrize("own", [1, 5])
def test_a_few_with_the_mark_of_an_export_do_not_make_one_without_marks_new(own: int) -> None:
    old = exported(100, "A", "2025-01-01T00:00:00Z", marked=False)
    _, data = match([*old, *exported(own, "OWN", TODAY, marked=True)], PackageList({}, []), NOW)
    assert data.newest("PyPI") == datetime.fromisoformat("2025-01-01T00:00:00Z")
    assert data.count("PyPI") == 100 + own


@pytest.mark.parametrize(("exports", "own"), [(3, 20), (20, 500)])
def test_an_export_with_marks_counts_alone_beside_more_of_ones_own(exports: int, own: int) -> None:
    old = exported(exports, "A", "2025-01-01T00:00:00Z", marked=True)
    _, data = match([*old, *exported(own, "OWN", TODAY, marked=False)], PackageList({}, []), NOW)
    assert data.newest("PyPI") == datetime.fromisoformat("2025-01-01T00:00:00Z")
    assert data.count("PyPI") == exports
