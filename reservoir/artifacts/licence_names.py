"""Names of licences as people write them in prose: which families a text names, and of which versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_GNU = "general public license|gpl"
# by the beginning of their SPDX names; in small letters, with blanks for all that is no letter, digit or version
FAMILIES: Mapping[str, str] = {
    "AFL": "academic free license(?: afl)?",
    "AGPL": f"(?:gnu )?affero(?: gnu)?(?: (?:{_GNU}|public license))?|agpl",
    "APSL": "apple public source license|apsl",
    "Apache": "apache (?:software )?license|asl",
    "Artistic": "artistic license",
    "BUSL": "business source license|busl|bsl 1.1",
    "CC-BY": "creative commons attribution|cc by",
    "CC-BY-NC": "attribution non ?commercial|cc by nc|by nc",
    "CC-BY-ND": "attribution no ?deriv(?:ative)?s?|cc by nd|by nd",
    "CC-BY-SA": "attribution share ?alike|cc by sa|by sa",
    "CDDL": "common development and distribution license|cddl",
    "CECILL": "cecill(?: free software license(?: agreement)?)?",
    "CPAL": "common public attribution license|cpal",
    "CPL": "common public license|cpl",
    "EPL": "eclipse public license|epl",
    "EUPL": "european union public license|eupl",
    "Elastic": "elastic license|elastic 2.0|elv2",
    "GFDL": "(?:gnu )?free documentation license|gfdl",
    "GPL": f"(?<!affero )(?<!lesser )(?<!library )(?:gnu )?(?:{_GNU})|gnu public license",
    "Hippocratic": "hippocratic license",
    "IPL": "ibm public license",
    "JSON": "(?:software shall be )?used for good not evil|json license",
    "LGPL": f"(?:gnu )?(?:lesser|library)(?: gnu)? (?:{_GNU}|public license)|lgpl",
    "MPL": "mozilla public license|mpl",
    "MS-PL": "microsoft public license|ms pl",
    "MS-RL": "microsoft reciprocal license|ms rl",
    "NPL": "netscape public license",
    "OFL": "open font license|ofl",
    "OSL": "open software license|osl",
    "OpenSSL": "openssl license|license of openssl|(?:by|of) the openssl project for use|original ssleay license",
    "PSF": "psf license|python software foundation license|psfl",
    "PolyForm": r"polyform(?: \w+){0,2}",
    "Python": "psf license|python software foundation license|psfl|python license",
    "QPL": "q public license|qpl",
    "Sleepycat": "sleepycat(?: public)? license",
    "SSPL": "server side public(?: license)?|mongodb public license|sspl",
}
# what takes back some of what another licence allows
NARROWING = {"Commons-Clause": "commons clause"}
_VERSION = r"v?[1-4](?:\.\d)?(?![\w.])"
# between a name and its version, as `License as published by the Free Software Foundation; either version 3`
_BETWEEN = (
    r"(?: (?:as|published|by|the|free|software|foundation|fsf|gnu|[al]?gpl|license|either|agreement|under|terms|of))"
    r"{0,12}"
)
# as `versions 2 and 3` and `version 2 or version 3`
_MORE = rf"(?: (?:and|or|to)(?: later)?(?: versions?)? {_VERSION}){{0,6}}"
_CHOICE = r"(?: (?:or|and|any|later|newer|greater|higher|at|your|option|only|[1-4](?:\.\d)?)){0,6}"


# as `version 2 or any later version of the`, looked for only where a name follows, and not further away
_BEFORE = re.compile(rf"\b(?P<before>{_VERSION}{_CHOICE}) of (?:the )?\Z")
_REACH = 80


def _named(name: str) -> re.Pattern[str]:
    after = rf"(?: ?(?P<beside>{_VERSION})|{_BETWEEN} (?:versions?|v|ver) (?P<after>{_VERSION}{_MORE}))"
    return re.compile(rf"\b(?:{name})(?:s?\b(?:{after})?|(?P<close>{_VERSION}))")


_PATTERNS = {family: _named(name) for family, name in {**FAMILIES, **NARROWING}.items()}
# what stands between a name and its version in a title, where the name may come again in short
_KIND = "(?: (?:license|condition|non ?commercial|share ?alike|no ?deriv(?:ative)?s?|international|unported))*"
_TITLES = {
    family: re.compile(
        rf"(?:(?:the|license|sil|creative commons) )*(?:{name})(?: (?:{name}))?{_KIND}(?: (?:version|v))?"
        r"(?: ?v?[1-4](?:\.\d+)*\b.*)?"
    )
    for family, name in {**FAMILIES, **NARROWING}.items()
}
_TERMS = {
    family: re.compile(rf"\bunder the terms of (?:either )?(?:the )?(?:{name})\b")
    for family, name in {**FAMILIES, **NARROWING}.items()
}


def versions(text: str) -> dict[str, set[str]]:
    """Return the families that a text names anywhere, each with the versions that stand beside its name."""
    words = _words(text)
    return {
        family: {version for match in matches for version in _beside(words, match)}
        for family, pattern in _PATTERNS.items()
        if (matches := list(pattern.finditer(words)))
    }


def _beside(words: str, name: re.Match[str]) -> Iterator[str]:
    """Yield the versions that stand beside a name, before it or behind."""
    before = _BEFORE.search(words, max(0, name.start() - _REACH), name.start())
    for said in (*name.groups(), *(before.groups() if before else ())):
        for version in re.findall(rf"\b{_VERSION}", said or ""):
            yield version.removeprefix("v").removesuffix(".0")


def titles(text: str) -> Iterator[str]:
    """Yield the families whose name is a line of the text, as above the text of a licence."""
    lines = {_words(line) for line in text.splitlines()}
    return (family for family, title in _TITLES.items() if any(map(title.fullmatch, lines)))


def terms(text: str) -> Iterator[str]:
    """Yield the families under whose terms a text says that something stands."""
    words = _words(text)
    return (family for family, pattern in _TERMS.items() if pattern.search(words))


def _words(text: str) -> str:
    """Return a text without punctuation and the marks of comments, in one spelling."""
    words = re.findall(r"[a-z0-9]+(?:\.[0-9]+)*", re.sub(r"^[ \t]*dnl\b", "", text.lower(), flags=re.MULTILINE))
    return " ".join(words).replace("licence", "license")
