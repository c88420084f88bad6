"""The policy: which findings stop a publication, which are borne for a while and why, which licences may go in."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from license_expression import ExpressionError, ExpressionParseError
from pydantic import AfterValidator, Field, StringConstraints

from common.errors import InputError
from common.strict import StrictModel
from common.yaml_document import check, parse
from reservoir.artifacts.image import cosign
from reservoir.artifacts.image.check import NAME
from reservoir.artifacts.licence import spdx
from reservoir.artifacts.python.describe import ECOSYSTEM as PYPI
from reservoir.scan.severity import Level
from reservoir.scan.versions import ORDERS, base

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

_PART = r"(?:[a-z0-9._*?-]|\[!?[a-z0-9._-]+\])+"
PATTERN = re.compile(rf"{_PART}(?:/{_PART})*")
WILD = frozenset("*?[")
# what stands for nothing, as a range of characters backwards
EMPTY = "(?!)"


def _licence(text: str) -> str:
    licensing = spdx()
    try:
        parsed = licensing.parse(text, validate=False)
    except (ExpressionError, ExpressionParseError) as error:
        raise ValueError(f"{text!r} is not an SPDX licence expression: {error}") from error
    strange = [name for name in licensing.unknown_license_keys(parsed) if not name.startswith("LicenseRef-")]
    if parsed is None or strange:
        raise ValueError(f"{', '.join(strange) or repr(text)} is not the SPDX name of a licence")
    return str(parsed.simplify().render())


Expression = Annotated[str, AfterValidator(_licence)]


class Limit(StrictModel):
    """What blocks: findings of `severity` and above. One whose severity nobody gives counts as `unknown_as`."""

    severity: Level = "high"
    unknown_as: Level = "high"


class Exemption(StrictModel):
    """A finding that is borne until the end of the day `expires`; without `package`, in every package."""

    id: Text
    package: Text | None = None
    reason: Text
    expires: date


class Unchecked(StrictModel):
    """What no advisories are asked for: an ecosystem, a target, or an image or a file as the report calls it."""

    name: Text
    reason: Text


class Licences(StrictModel):
    """Which licences may go in, as SPDX names and expressions; with `allow` empty, all that are not denied.

    `unknown` says what a package without a known licence does: it blocks where there is a list, as nobody can tell
    that it is not what the list keeps out, and is listed otherwise. `stated` gives the licence of packages, by name,
    that do not say it in a way that can be read, or says it anew for those that say it wrong.
    """

    allow: list[Expression] = Field(default_factory=list)
    deny: list[Expression] = Field(default_factory=list)
    unknown: Literal["list", "block"] | None = None
    stated: dict[str, Expression] = Field(default_factory=dict)

    @property
    def unknown_blocks(self) -> bool:
        """Say whether a package without a known licence stops a publication."""
        return self.unknown == "block" if self.unknown else bool(self.allow or self.deny)


def _key(text: str) -> str:
    try:
        cosign.read_key(text.encode(), "")
    except InputError as error:
        raise ValueError("not a public key of cosign: give the text of the maker's cosign.pub, in PEM") from error
    return text


def _images(text: str) -> str:
    # what the names of images have, and what stands for a part of them
    if not PATTERN.fullmatch(text) or EMPTY in fnmatch.translate(text) or not (WILD & {*text} or NAME.fullmatch(text)):
        raise ValueError(
            "no image is called so: give names without tag and digest, in lower case, where `*` stands for anything"
        )
    return text


class SignedImages(StrictModel):
    """Images by name, where `*` stands for anything, and public keys by the name of whom they are of, as PEM.

    One of the keys must have signed such an image with cosign; where there is none, nobody needs to.
    """

    images: Annotated[list[Annotated[Text, AfterValidator(_images)]], Field(min_length=1)]
    keys: dict[Text, Annotated[str, AfterValidator(_key)]]


class ScanPolicy(StrictModel):
    """The rules of a site or a bundle. Advisories older than `max_age_days` are no advisories.

    `least` says how many advisories an ecosystem, or each release of one, must have. `closed` is about files, and
    images from elsewhere, of which nobody says what is inside. With `clamav`, a publication needs a pass for malware;
    `partly` is about files of which that saw a part only, because they are too long, too deeply packed or encrypted. Of
    `signed_images` the first counts that names an image.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    max_age_days: Annotated[int, Field(ge=1, le=3650)] = 14
    least: dict[Text, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    block: Limit = Limit()
    closed: Literal["list", "block"] = "list"
    exceptions: list[Exemption] = Field(default_factory=list)
    unchecked: list[Unchecked] = Field(default_factory=list)
    licences: Licences = Licences()
    clamav: bool = False
    partly: Literal["list", "block"] = "list"
    signed_images: list[SignedImages] = Field(default_factory=list)

    def least_of(self, ecosystem: str) -> int | None:
        """Return how many advisories an ecosystem must have, by its release first."""
        return self.least.get(ecosystem, self.least.get(base(ecosystem)))


def load(text: str, source: str, *, kept: bool = False, own: Iterable[str] = ()) -> ScanPolicy:
    """Return the policy in `text`; raises InputError that names line, reason and hint of every problem.

    Under `least` it may name the ecosystems that Penstock knows, and `own`, those of the targets that it is for. One
    that a site has `kept` may name any: what an earlier release took must not stop imports after an upgrade.
    """
    document = parse(text, source)
    policy = check(ScanPolicy, document)
    seen: list[tuple[str, str | None]] = []
    problems = []
    for index, exemption in enumerate(policy.exceptions):
        if (exemption.id, exemption.package) in seen:
            problems.append(
                document.problem(("exceptions", index), f"{exemption.id} is excepted twice", "keep one of them")
            )
        seen.append((exemption.id, exemption.package))
    bases = {base(ecosystem) for ecosystem in own}
    problems += [
        document.problem(("least", name), "no ecosystem is called so", hint)
        for name in policy.least
        if not kept and (hint := _misnamed(name, bases))
    ]
    if problems:
        raise InputError.of(problems)
    return policy


def _misnamed(text: str, own: set[str]) -> str:
    """Return what to write in place of the name of an ecosystem; nothing where it is one, or one of one's own."""
    name, colon, release = text.partition(":")
    meant = next((known for known in ORDERS if known.lower() == name.lower()), None)
    if meant is None and name in own:
        return ""
    if meant is None:
        return f"write one of {', '.join(ORDERS)}, with a release or without"
    if meant == PYPI and colon:
        return f"write {PYPI}, which has no releases"
    if meant != name or bool(colon) != bool(release):
        return f"write {meant}{colon if release else ''}{release}"
    return ""


def read_policy(path: Path, *, kept: bool = False, own: Iterable[str] = ()) -> ScanPolicy:
    """Return the policy in a file, as `load` does; raises InputError where it is missing or not valid."""
    try:
        return load(path.read_text(), str(path), kept=kept, own=own)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="give the file of a policy") from error
