from __future__ import annotations

import pytest

from reservoir.errors import InputError
from reservoir.manifest import load
from tests.unit.reservoir.parts import MANIFEST


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        load(text, "manifest.yml")
    return str(caught.value)


def test_a_manifest_is_read_with_its_defaults() -> None:
    manifest = load(MANIFEST, "manifest.yml")
    target = manifest.target("debian12")
    assert (target.arch, target.glibc, target.pins) == ("amd64", "2.36", ["o=Debian,n=bookworm*"])
    assert manifest.images[0].archive == "small_base_1.tar"


def test_an_unknown_key_is_named_with_its_line_and_a_cure() -> None:
    said = refusal(MANIFEST + "debain: {}\n")
    assert "manifest.yml:12: debain: unknown key" in said
    assert "Cure: remove the key" in said


def test_every_problem_is_told_at_once() -> None:
    said = refusal(MANIFEST.replace("rich>=13", "rich>==13").replace("[jq]", "[JQ]"))
    assert "manifest.yml:7: python.requirements[0]: 'rich>==13' is not a Python requirement" in said
    assert "manifest.yml:9: debian.nodes[0]" in said


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('version: "1.0"', 'version: "one"', "'one' is not a version"),
        ("rich>=13", "rich @ https://example.org/rich.whl", "points to an address"),
        ("target: debian12", "target: debian13", "no target is named 'debian13'"),
        (", bootstrap: true", "", "does not bring what a root file system is made of"),
        ("release: bookworm", "release: woody", "'bookworm' or 'trixie'"),
        ("schema: 1", "schema: 2", "Input should be 1"),
        ("  - {name: debian12, release: bookworm, python: \"3.11\", bootstrap: true}", "  []", "at least 1"),
        ("name: small\n", "name: ../up\n", "String should match"),
        ("[python3]", "[python3], files: [{path: /etc/../x, content: y}]", "not a clean absolute path"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(old: str, new: str, reason: str) -> None:
    assert old in MANIFEST
    assert reason in refusal(MANIFEST.replace(old, new))


def test_two_things_of_one_name_are_refused() -> None:
    twice = MANIFEST + '  - {name: small_base, tag: "1", target: debian12, packages: []}\n'
    assert "images[1]: 'small_base_1.tar' stands twice" in refusal(twice)


def test_the_digest_is_of_the_meaning() -> None:
    plain = load(MANIFEST, "a").digest()
    assert load("# a comment\n" + MANIFEST.replace("[jq]", "\n    - jq"), "b").digest() == plain
    assert load(MANIFEST.replace("[jq]", "[jq, curl]"), "c").digest() != plain
