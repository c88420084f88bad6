from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import InputError
from common.image_references import HUB
from reservoir.scan.checker import scan
from reservoir.scan.facts import Facts
from reservoir.scan.page import render
from reservoir.scan.policy import ScanPolicy, load, read_policy
from reservoir.scan.report import Infected, Malware, Report
from reservoir.scan.verdict import Verdict, judge
from tests.unit.reservoir.scan.advisories import HIGH, MEDIUM, NOW, URLLIB3, advisory, bundle, cvss, package, write

TWICE = "  - {id: A, reason: x, expires: 2026-01-01}\n  - {id: A, reason: y, expires: 2026-02-01}\n"
OLD = package("python", "urllib3", "1.24.3")
EXCEPTION = {
    "id": "CVE-2021-33503",
    "package": "urllib3",
    "reason": "no address comes from users",
    "expires": "2026-03-10",
}


@pytest.fixture
def made(tmp_path: Path) -> Report:
    """One fault of high severity and one of medium, in one package under the MIT licence."""
    return scan(
        bundle(OLD), Facts(licences={OLD.sha256: ("MIT", "")}), [write(tmp_path, *URLLIB3)], ScanPolicy(), now=NOW
    )


def policy(**more: Any) -> ScanPolicy:
    return ScanPolicy.model_validate({"schema": 1} | more)


def blocked(verdict: Verdict) -> list[str]:
    return [f"{problem.where}: {problem.reason}" for problem in verdict.blocking]


def test_high_severity_blocks_and_the_hint_is_the_fixed_version(made: Report) -> None:
    (problem,) = judge(made, ScanPolicy(), NOW).blocking
    assert str(problem) == (
        "urllib3 1.24.3: CVE-2021-33503 (high) in urllib3-1.24.3.whl. "
        "Hint: take version 1.26.5, or except it in the policy with a reason and a date"
    )


@pytest.mark.parametrize(("level", "count"), [("critical", 0), ("high", 1), ("medium", 2), ("low", 2)])
def test_the_policy_says_from_which_severity_on_a_finding_blocks(made: Report, level: str, count: int) -> None:
    assert len(judge(made, policy(block={"severity": level}), NOW).blocking) == count


@pytest.mark.parametrize(("level", "count"), [("high", 1), ("low", 0)])
def test_an_unknown_severity_counts_as_what_the_policy_says(tmp_path: Path, level: str, count: int) -> None:
    write(tmp_path, advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}))
    made = scan(bundle(OLD), Facts(), [tmp_path], ScanPolicy(), now=NOW)
    found = blocked(judge(made, policy(block={"unknown_as": level}), NOW))
    assert found == ["urllib3 1.24.3: A-1 (of unknown severity) in urllib3-1.24.3.whl"][:count]


def test_what_an_earlier_policy_left_unchecked_blocks_under_one_that_does_not(tmp_path: Path) -> None:
    lenient = policy(unchecked=[{"name": "PyPI", "reason": "another scanner does it"}])
    write(tmp_path, advisory("A-1", "npm", "left-pad", {"introduced": "0"}))
    made = scan(bundle(OLD), Facts(), [tmp_path], lenient, now=NOW)
    assert not judge(made, lenient, NOW).blocking
    assert blocked(judge(made, ScanPolicy(), NOW)) == [
        "PyPI: no advisories were asked about it, and the policy does not excuse that"
    ]


def test_an_exception_holds_until_the_end_of_its_day(made: Report) -> None:
    rules = policy(exceptions=[EXCEPTION])
    verdict = judge(made, rules, NOW)
    assert not verdict.blocking
    assert not verdict.notes
    assert [(finding.id, exemption.reason) for finding, exemption in verdict.borne] == [
        ("CVE-2021-33503", "no address comes from users")
    ]
    late = judge(made, rules, NOW + timedelta(days=1))
    assert "its exception expired on 2026-03-10" in blocked(late)[0]
    assert late.notes == ["the exception for CVE-2021-33503 in urllib3 expired on 2026-03-10"]


@pytest.mark.parametrize("name", ["GHSA-q2q7-5pp4-w6pg", "CVE-2021-33503"])
def test_an_exception_may_use_any_name_of_the_fault(made: Report, name: str) -> None:
    assert not judge(made, policy(exceptions=[EXCEPTION | {"id": name, "package": None}]), NOW).blocking


def test_an_exception_for_a_lesser_fault_does_not_bear_a_greater_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, aliases=["CVE-2026-1"], severity=cvss(MEDIUM)),
        advisory("B-1", "PyPI", "urllib3", {"introduced": "0"}, aliases=["CVE-2026-2"], severity=cvss(HIGH)),
        advisory("C-1", "PyPI", "urllib3", {"introduced": "0"}, aliases=["CVE-2026-1", "CVE-2026-2"]),
        advisory("D-1", "PyPI", "urllib3", {"introduced": "0"}, upstream=["CVE-2026-1", "CVE-2026-2"]),
    )
    made = scan(bundle(OLD), Facts(), [tmp_path], ScanPolicy(), now=NOW)
    one = policy(exceptions=[EXCEPTION | {"id": "CVE-2026-1"}])
    where, both = "urllib3 1.24.3", "it is about several faults, of which CVE-2026-2 is not excepted"
    assert blocked(judge(made, one, NOW)) == [
        f"{where}: CVE-2026-2 (high) in urllib3-1.24.3.whl",
        f"{where}: CVE-2026-1 (of unknown severity) in urllib3-1.24.3.whl; {both}",
    ]
    every = policy(exceptions=[EXCEPTION | {"id": name} for name in ("CVE-2026-1", "CVE-2026-2")])
    assert not judge(made, every, NOW).blocking
    # a report of before, whose names were put together
    (joined, *_) = made.findings
    old = joined.model_copy(update={"cves": [], "names": ["A-1", "B-1", "CVE-2026-1", "CVE-2026-2"]})
    assert blocked(judge(made.model_copy(update={"findings": [old]}), one, NOW))


def test_a_site_may_ask_for_a_number_of_advisories(made: Report) -> None:
    borne = {"exceptions": [EXCEPTION]}
    assert not judge(made, policy(least={"PyPI": 3}, **borne), NOW).blocking
    said = "PyPI: there are 3 advisories; the policy asks for 4 at least"
    assert blocked(judge(made, policy(least={"PyPI": 4}, **borne), NOW)) == [said]


def test_a_number_for_an_ecosystem_is_one_for_each_of_its_releases(made: Report) -> None:
    (pypi,) = made.checked
    checked = [pypi.model_copy(update={"ecosystem": f"Debian:{release}"}) for release in (12, 13)]
    two = made.model_copy(update={"checked": checked})
    said = "Debian:13: there are 3 advisories; the policy asks for 4 at least"
    rules = policy(least={"Debian": 4, "Debian:12": 3}, exceptions=[EXCEPTION])
    assert blocked(judge(two, rules, NOW)) == [said]
    assert not any("least" in note for note in judge(two, rules, NOW).notes)


def test_a_number_of_advisories_that_is_asked_of_nothing_is_told(made: Report) -> None:
    notes = judge(made, policy(least={"Debian:bookworm": 4}), NOW).notes
    assert notes == ["`least` names Debian:bookworm, of which nothing was checked"]


def test_what_nobody_says_what_is_inside_of_blocks_where_the_policy_says(tmp_path: Path) -> None:
    write(tmp_path, *URLLIB3)
    made = scan(bundle(package("file", "driver.run", "1"), package("python", "urllib3", "9")), Facts(), [tmp_path],
                ScanPolicy(), now=NOW)  # fmt: skip
    assert not judge(made, ScanPolicy(), NOW).blocking
    assert blocked(judge(made, policy(closed="block"), NOW)) == [
        "file driver.run-1.bin: nobody says which packages are inside"
    ]
    excused = [{"name": "file driver.run-1.bin", "reason": "signed by its maker"}]
    assert not judge(made, policy(closed="block", unchecked=excused), NOW).blocking


def test_what_a_search_for_malware_could_not_see_blocks_where_the_policy_says(made: Report) -> None:
    searched = Malware(engine="x", signatures=NOW, files=2, found=[], partly=["long.bin"], encrypted=["shut.zip"])
    partly = made.model_copy(update={"malware": searched})
    rules = {"exceptions": [EXCEPTION]}
    assert not judge(partly, policy(**rules), NOW).blocking
    assert blocked(judge(partly, policy(partly="block", **rules), NOW)) == [
        "long.bin: is too long or too deeply packed to be searched whole",
        "shut.zip: is encrypted, so that nobody can search it",
    ]


def test_an_exception_for_another_package_does_not_count_and_is_told(made: Report) -> None:
    verdict = judge(made, policy(exceptions=[EXCEPTION | {"package": "requests"}]), NOW)
    assert len(verdict.blocking) == 1
    assert verdict.notes == ["the exception for CVE-2021-33503 in requests is not used: remove it"]


def test_a_report_whose_advisories_have_grown_old_blocks(made: Report) -> None:
    late = judge(made, policy(exceptions=[EXCEPTION | {"expires": "2027-01-01"}]), NOW + timedelta(days=15))
    assert blocked(late) == ["PyPI: the newest advisory is of 2026-03-10, which is 15 days ago; 14 are allowed"]


@pytest.mark.parametrize(
    ("expression", "rules", "allowed"),
    [
        ("MIT", {"allow": ["MIT", "Apache-2.0"]}, True),
        ("GPL-3.0-only", {"allow": ["MIT"]}, False),
        ("GPL-3.0-only", {"deny": ["GPL-3.0-only"]}, False),
        ("MIT OR GPL-3.0-only", {"deny": ["GPL-3.0-only"]}, True),
        ("MIT AND GPL-3.0-only", {"deny": ["GPL-3.0-only"]}, False),
        ("(MIT OR GPL-3.0-only) AND BSD-3-Clause", {"allow": ["MIT", "BSD-3-Clause"]}, True),
        ("MIT AND GPL-3.0-only", {"allow": ["MIT AND GPL-3.0-only"]}, True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", {"deny": ["GPL-2.0-only"]}, False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", {"allow": ["GPL-2.0-only WITH Classpath-exception-2.0"]}, True),
        ("LicenseRef-Debian-custom", {"deny": ["LicenseRef-Debian-custom"]}, False),
        # expressions are matched whole, in whatever order they stand
        ("GPL-3.0-only AND MIT", {"deny": ["MIT AND GPL-3.0-only"]}, False),
        ("GPL-3.0-only AND ISC AND MIT", {"deny": ["MIT AND GPL-3.0-only"]}, False),
        ("MIT OR GPL-3.0-only", {"deny": ["GPL-3.0-only OR MIT"]}, False),
        ("MIT", {"deny": ["MIT AND GPL-3.0-only"]}, True),
        ("ISC OR (GPL-3.0-only AND MIT)", {"deny": ["MIT AND GPL-3.0-only"]}, True),
        ("GPL-3.0-only AND MIT", {"allow": ["MIT AND GPL-3.0-only"]}, True),
        ("GPL-3.0-only AND ISC AND MIT", {"allow": ["MIT AND GPL-3.0-only", "ISC"]}, True),
        ("GPL-3.0-only AND ISC", {"allow": ["MIT AND GPL-3.0-only", "ISC"]}, False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", {"deny": ["GPL-2.0-only WITH Classpath-exception-2.0"]}, False),
        # a word for several licences, of which one is denied
        ("LicenseRef-Debian-GPL-3", {"deny": ["GPL-3.0-or-later"]}, False),
        ("LicenseRef-Debian-GPL", {"deny": ["GPL-3.0-or-later"]}, False),
        ("LicenseRef-Debian-LGPL-3", {"deny": ["GPL-3.0-or-later"]}, True),
        ("LicenseRef-Debian-GPL-3-or-later-with-Bison-exception", {"deny": ["GPL-3.0-or-later"]}, False),
        ("LicenseRef-Debian-GPL-2-or-later-with-Bison-exception", {"deny": ["GPL-3.0-or-later"]}, True),
        ("LicenseRef-BSD", {"deny": ["BSD-4-Clause"]}, False),
        ("LicenseRef-BSD", {"deny": ["BSD-4-Clause"], "unknown": "list"}, True),
        # where there is a list, what nobody knows is kept out
        (None, {"allow": ["MIT"]}, False),
        (None, {"deny": ["MIT"]}, False),
        (None, {"allow": ["MIT"], "unknown": "list"}, True),
        (None, {}, True),
        (None, {"unknown": "block"}, False),
        (None, {"unknown": "block", "stated": {"urllib3": "MIT"}}, True),
        ("GPL-3.0-only", {"deny": ["GPL-3.0-only"], "stated": {"urllib3": "MIT"}}, True),
    ],
)
def test_licences_are_allowed_denied_and_stated(
    tmp_path: Path, expression: str | None, rules: dict[str, Any], allowed: bool
) -> None:
    write(tmp_path, advisory("A-1", "PyPI", "other", {"introduced": "0"}))
    known = Facts(licences={OLD.sha256: (expression, "License")})
    decided = policy(licences=rules)
    made = scan(bundle(OLD), known, [tmp_path], decided, now=NOW)
    assert bool(judge(made, decided, NOW).blocking) is not allowed


def test_malware_blocks_whatever_the_policy_says(made: Report) -> None:
    found = Infected(filename="evil.whl", sha256="0" * 64, signature="Test.Marker")
    infected = made.model_copy(
        update={"malware": Malware(engine="ClamAV", signatures=NOW, files=1, found=[found], partly=[])}
    )
    assert "evil.whl: malware was found: Test.Marker" in blocked(
        judge(infected, policy(block={"severity": "critical"}), NOW)
    )


def test_a_policy_may_ask_for_a_search_for_malware(made: Report) -> None:
    rules = policy(clamav=True, block={"severity": "critical"})
    assert blocked(judge(made, rules, NOW)) == ["clamav: the policy asks for a search for malware"]
    clean = made.model_copy(update={"malware": Malware(engine="x", signatures=NOW, files=1, found=[], partly=[])})
    assert not judge(clean, rules, NOW).blocking


def test_signatures_of_malware_grow_old(made: Report) -> None:
    rules = policy(clamav=True, max_age_days=14, block={"severity": "critical"})
    searched = Malware(engine="x", signatures=NOW - timedelta(days=15), files=1, found=[], partly=[])
    late = made.model_copy(update={"malware": searched})
    assert blocked(judge(late, rules, NOW)) == ["clamav: the newest signatures were of 2026-02-23; 14 days are allowed"]
    assert not judge(late, rules.model_copy(update={"clamav": False}), NOW).blocking


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("schema: 1\nblocks: {}\n", "policy.yml:2: blocks: unknown key"),
        ("schema: 1\nmax_age_days: 0\n", "policy.yml:2: max_age_days"),
        ("schema: 1\nblock:\n  severity: terrible\n", "policy.yml:3: block.severity"),
        ("schema: 1\nexceptions:\n  - id: A\n    reason: x\n", "exceptions[0].expires: this is required"),
        ("schema: 1\nexceptions:\n  - {id: A, reason: ' ', expires: 2026-01-01}\n", "exceptions[0].reason"),
        (f"schema: 1\nexceptions:\n{TWICE}", "policy.yml:4: exceptions[1]: A is excepted twice"),
        ("schema: 1\nsigned_images:\n  - {images: ['demo:1'], keys: {}}\n",
         "policy.yml:3: signed_images[0].images[0]: no image is called so: give names without tag and digest"),
        ("schema: 1\nsigned_images:\n  - {images: ['demo@sha256:*'], keys: {}}\n", "no image is called so"),
        ("schema: 1\nsigned_images:\n  - {images: ['*', 'Demo/*'], keys: {}}\n", "signed_images[0].images[1]"),
        *((f"schema: 1\nsigned_images:\n  - {{images: ['{pattern}'], keys: {{}}}}\n", "no image is called so")
          for pattern in ("vendor/", "/vendor/*", "a//b",
                          "vendor/[ab", "vendor/[z-a]*", "vendor/[]x", "a]", "*/", "-a")),
        ("schema: 1\nleast: {pypi: 5}\n", "no ecosystem is called so. Hint: write PyPI"),
        ("schema: 1\nleast: {'debian:12': 5}\n", "no ecosystem is called so. Hint: write Debian:12"),
        ("schema: 1\nleast: {Haiku: 5}\n", "no ecosystem is called so. Hint: write one of PyPI, Debian, Ubuntu,"),
        ("schema: 1\nleast: {'PyPI:3': 5}\n", "no ecosystem is called so. Hint: write PyPI, which has no releases"),
        ("schema: 1\nleast: {'Debian:': 5}\n", "no ecosystem is called so. Hint: write Debian"),
        ("schema: 1\nlicences:\n  deny: [GPL3ish]\n", "GPL3ish is not the SPDX name of a licence"),
        ("schema: 1\nlicences:\n  deny: ['MIT AND']\n", "is not an SPDX licence expression"),
    ],
)  # fmt: skip
def test_a_policy_that_is_not_valid_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text, "policy.yml")
    assert reason in str(caught.value)


@pytest.mark.parametrize("pattern", ["*", "vendor/*", "v[a-z]?dor/[!a]*", f"{HUB}/*", "a/b__c-d", "*/x"])
def test_patterns_that_images_may_match_are_taken(pattern: str) -> None:
    text = (
        f"schema: 1\nleast: {{PyPI: 5, 'Rocky Linux:9': 1}}\nsigned_images: [{{images: ['{pattern}'], keys: {{}}}}]\n"
    )
    assert load(text, "policy.yml").signed_images[0].images == [pattern]


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_policy(tmp_path / "absent.yml")


def test_the_page_tells_everything_and_loads_nothing(made: Report) -> None:
    page = render(made, judge(made, policy(exceptions=[EXCEPTION, EXCEPTION | {"id": "CVE-1"}]), NOW)).decode()
    for words in (
        "Passed by the policy",
        "<b>1</b> high",
        "CVE-2020-26137",
        "GHSA-wqvq-5m8c-6g24, PYSEC-2020-148",
        "urllib3-1.24.3.whl",
        "Excepted until 2026-03-10: no address comes from users",
        "the exception for CVE-1 in urllib3 is not used",
        "2026-03-10",
        "MIT",
        "Malware: not searched for",
    ):
        assert words in page
    assert page.index("CVE-2021-33503") < page.index("CVE-2020-26137")
    assert not any(word in page for word in ("http:", "https:", "<script", "<link", "<img", "url("))


def test_the_page_of_a_refusal_names_reasons_and_hints(made: Report) -> None:
    page = render(made, judge(made, ScanPolicy(), NOW)).decode()
    assert "Refused by the policy" in page
    assert "take version 1.26.5" in page


def test_what_advisories_say_cannot_write_the_page(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    write(tmp_path, advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, summary=evil))
    made = scan(bundle(OLD), Facts(licences={OLD.sha256: (evil, "")}), [tmp_path], ScanPolicy(), now=NOW)
    page = render(made, Verdict()).decode()
    assert evil not in page
    assert "&lt;script&gt;" in page


def test_the_policy_in_the_documentation_is_a_policy() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reservoir.md").read_text()
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "max_age_days" in block]
    written = load(text, "docs/reservoir.md")
    assert (written.max_age_days, written.block, written.clamav) == (14, ScanPolicy().block, False)
    assert written.exceptions[0].id == "CVE-2021-33503"


@pytest.mark.parametrize("first", ["GHSA-1", "MAL-2026-1"])
def test_malware_blocks_whatever_the_policy_says_of_severity_and_of_a_fault_of_another_name(
    tmp_path: Path, first: str
) -> None:
    second = "MAL-2026-1" if first == "GHSA-1" else "GHSA-1"
    low = cvss("CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N")
    write(
        tmp_path,
        advisory("CVE-2026-1", "PyPI", "urllib3", {"introduced": "0"}, severity=low),
        advisory(first, "PyPI", "urllib3", {"introduced": "0"}, aliases=["CVE-2026-1", second]),
    )
    made = scan(bundle(OLD), Facts(), [tmp_path], ScanPolicy(), now=NOW)
    borne = [EXCEPTION | {"id": name} for name in ("CVE-2026-1", "GHSA-1")]
    assert blocked(judge(made, policy(block={"severity": "critical"}, exceptions=borne), NOW)) == [
        "urllib3 1.24.3: MAL-2026-1 (critical) in urllib3-1.24.3.whl"
    ]
    # who knows better says so of the malware itself
    borne.append(EXCEPTION | {"id": "MAL-2026-1"})
    assert blocked(judge(made, policy(exceptions=borne), NOW)) == []


def test_an_age_that_no_calendar_has_is_refused() -> None:
    with pytest.raises(InputError, match="max_age_days"):
        load("schema: 1\nmax_age_days: 99999999999\n", "policy.yml")


@pytest.mark.parametrize(("word", "severity"), [("LOW", "unknown"), ("HIGH", "high"), ("CRITICAL", "critical")])
def test_a_vector_that_nobody_can_read_does_not_hide_behind_a_lesser_word(
    tmp_path: Path, word: str, severity: str
) -> None:
    said: dict[str, Any] = {"severity": cvss("CVSS:3.1/AV:X"), "database_specific": {"severity": word}}
    write(tmp_path, advisory("A-1", "PyPI", "urllib3", {"introduced": "0"}, **said))
    made = scan(bundle(OLD), Facts(), [tmp_path], ScanPolicy(), now=NOW)
    assert [finding.severity for finding in made.findings] == [severity]
    assert len(judge(made, ScanPolicy(), NOW).blocking) == 1


def test_a_policy_that_was_kept_may_name_what_is_no_ecosystem() -> None:
    text = "schema: 1\nleast: {npm: 5, pypi: 7}\n"
    assert load(text, "policy.yml", kept=True).least == {"npm": 5, "pypi": 7}


@pytest.mark.parametrize("name", ["CloudLinux", "CloudLinux:8"])
def test_the_ecosystem_of_a_target_of_ones_own_may_be_asked_a_number_of(name: str) -> None:
    text = f"schema: 1\nleast: {{'{name}': 5}}\n"
    assert load(text, "policy.yml", own=["CloudLinux:8"]).least == {name: 5}
    with pytest.raises(InputError, match=r"no ecosystem is called so\. Hint: write Debian:12"):
        load("schema: 1\nleast: {'debian:12': 5}\n", "policy.yml", own=["Debian:12"])
    with pytest.raises(InputError, match=r"policy.yml:2: least.*no ecosystem is called so"):
        load(text, "policy.yml", own=["Rocky Linux:9"])
