from __future__ import annotations

import hashlib
from typing import Any

import pytest

from common.errors import InputError
from reservoir.manifest.reading import load
from tests.unit.reservoir.parts import MANIFEST

SOURCE = "sources: [{name: s, kind: debian, url: 'file:///a', suite: x, keys: [k], unsigned_metadata: true}]\n"


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        load(text, "manifest.yml")
    return str(caught.value)


def test_a_manifest_is_read_with_its_defaults() -> None:
    manifest = load(MANIFEST, "manifest.yml")
    target = manifest.target("debian12")
    assert (target.arch, target.c_library, target.pins[0]) == ("amd64", "2.36", "o=Debian,n=bookworm")
    assert manifest.debian["nodes"].packages == ["jq"]


def test_an_unknown_key_is_named_with_its_line_and_a_hint() -> None:
    said = refusal(MANIFEST + "holds: []\n")
    assert "manifest.yml:12: holds: unknown key" in said
    assert "Hint: remove the key" in said


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
        ("release: bookworm", "release: woody", "'woody' is not a release of Debian or Ubuntu that is known"),
        ("schema: 1", "schema: 2", "is not 1"),
        ("  - {name: debian12, release: bookworm, python: \"3.11\", bootstrap: true}", "  []", "is empty"),
        ("name: small\n", "name: ../up\n", "does not match"),
        ("images:", SOURCE + "images:", "covers its packages, too"),
        ("[python3]", "[python3], files: [{path: /etc/../x, content: y}]", "not a clean absolute path"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(old: str, new: str, reason: str) -> None:
    assert old in MANIFEST
    assert reason in refusal(MANIFEST.replace(old, new))


TARGETS = """\
schema: 1
name: small
version: "1.0"
targets:
  - {name: debian12, release: bookworm}
  - {name: el9, os: rpm, release: "9", sources: [base]}
sources:
  - {name: base, kind: rpm, url: "file:///a", keys: [k]}
"""


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("debian: {tools: {packages: [jq], targets: [el9]}}", "debian.tools.targets: target 'el9' takes no Debian"),
        ("rpm: {tools: {packages: [jq], targets: [debian12]}}", "rpm.tools.targets: target 'debian12' takes no RPM"),
        ("python: {groups: {a: {requirements: [x], targets: [el9]}}}", "target 'el9' takes no Python packages"),
        ("python: {groups: {a: [x]}}", "python.groups.a: no target takes Python packages"),
        ("python: {requirements: [x]}", "python: no target takes Python packages"),
        ("version_sets: [{name: gpu, packages: {'nvidia-*': '580.*'}}]", "version_sets[0].packages"),
    ],
)
def test_nothing_that_would_go_nowhere_is_passed_over(more: str, reason: str) -> None:
    assert load(TARGETS, "manifest.yml").target("el9").os == "rpm"
    assert reason in refusal(TARGETS + more)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("os: rpm", "os: rpm, origins: [o=Rocky]", "targets[1].origins: only apt knows origins"),
        ("kind: rpm", "kind: rpm, components: [main]", "sources[0].components: an RPM source has no components"),
    ],
)
def test_a_field_that_would_do_nothing_is_refused(old: str, new: str, reason: str) -> None:
    assert reason in refusal(TARGETS.replace(old, new))


def test_two_things_of_one_name_are_refused() -> None:
    twice = MANIFEST + '  - {name: small/base, tag: "1", target: debian12, packages: []}\n'
    assert "images[1]: 'small/base:1' stands twice" in refusal(twice)


def test_the_digest_is_of_the_meaning() -> None:
    plain = load(MANIFEST, "a").digest()
    assert load("# a comment\n" + MANIFEST.replace("[jq]", "\n    - jq"), "b").digest() == plain
    assert load(MANIFEST.replace("[jq]", "[jq, curl]"), "c").digest() != plain


def test_sources_that_are_built_count_and_a_password_does_not() -> None:
    def digest(user: str, name: str = "a") -> str:
        sdist = f'{{url: "https://{user}packages.example/{name}-1.0.tar.gz", sha256: "{"0" * 64}", build: [wheel]}}'
        return load(MANIFEST.replace("python:\n", f"python:\n  sdists: [{sdist}]\n"), "a").digest()

    assert digest("") == digest("me:secret@") != digest("", "b")
    assert digest("") != load(MANIFEST, "a").digest()
    # locks of a release that knew none go on counting
    manifest = load(MANIFEST, "a")
    before = manifest.model_dump_json(by_alias=True, exclude={"valid_days": True, "python": {"sdists"}})
    assert manifest.digest() == hashlib.sha256(before.encode()).hexdigest()


def test_signatures_that_are_asked_for_count_and_lie_in_registries() -> None:
    def text(source: str, more: str = "") -> str:
        image = f"{{name: vendor/tool, tag: '1', source: '{source}'{more}}}"
        return MANIFEST + f"external_images:\n  - {image}\n"

    plain, signed = (load(text("docker://there/tool:1", more), "a") for more in ("", ", signed_by: [keys/a.pub]"))
    assert plain.digest() != signed.digest()
    # locks of a release that knew none go on counting
    unknown: dict[str, Any] = {"valid_days": True, "python": {"sdists"}, "external_images": {"__all__": {"signed_by"}}}
    before = plain.model_dump_json(by_alias=True, exclude=unknown)
    assert plain.digest() == hashlib.sha256(before.encode()).hexdigest()
    assert "signatures of cosign lie in registries" in refusal(text("oci:images:1", ", signed_by: [keys/a.pub]"))
