"""Names of licences as people write them in prose: which families a text names, and of which versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_GNU = "general public license|gpl"
# by the beginning of their SPDX names; in small letters, with blanks for all that is no letter, digit or version
FAMILIES: Mapping[str, str] = {
    "AFL": "academic free license",
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
    "CPL": "common public license|cpl",
    "EPL": "eclipse public license|epl",
    "EUPL": "european union public license|eupl",
    "Elastic": "elastic license|elastic 2.0|elv2",
    "GFDL": "(?:gnu )?free documentation license|gfdl",
    "GPL": f"(?<!affero )(?<!lesser )(?<!library )(?:gnu )?(?:{_GNU})",
    "Hippocratic": "hippocratic license",
    "IPL": "ibm public license",
    "JSON": "used for good not evil|json license",
    "LGPL": f"(?:gnu )?(?:lesser|library)(?: gnu)? (?:{_GNU})|lgpl",
    "MPL": "mozilla public license|mpl",
    "MS-PL": "microsoft public license|ms pl",
    "MS-RL": "microsoft reciprocal license|ms rl",
    "NPL": "netscape public license",
    "OFL": "open font license|ofl",
    "OSL": "open software license|osl",
    "OpenSSL": "openssl license|license of openssl|(?:by|of) the openssl project for use|original ssleay license",
    "PSF": "psf license|python software foundation license|psfl",
    "PolyForm": "polyform",
    "Python": "psf license|python software foundation license|psfl|python license",
    "QPL": "q public license|qpl",
    "SSPL": "server side public(?: license)?|mongodb public license|sspl",
}
# what takes back some of what another licence allows
NARROWING = {"Commons-Clause": "commons clause"}
_VERSION = r"v?[1-4](?:\.\d)?(?![\w.])"
# between a name and its version, as `License as published by the Free Software Foundation; either version 3`
_BETWEEN = (
    r"(?: (?:as|published|by|the|free|software|foundation|fsf|gnu|[al]?gpl|either|agreement|under|terms|of)){0,12}"
)
_CHOICE = r"(?: (?:or|and|any|later|newer|greater|higher|at|your|option|only|[1-4](?:\.\d)?)){0,6}"


def _named(name: str) -> re.Pattern[str]:
    after = rf"(?: ?(?P<beside>{_VERSION})|{_BETWEEN} (?:versions?|v|ver) (?P<after>{_VERSION}))"
    before = rf"(?P<before>{_VERSION}){_CHOICE} of (?:the )?"
    return re.compile(rf"\b(?:{before})?(?:{name})(?:s?\b(?:{after})?|(?P<close>{_VERSION}))")


_PATTERNS = {family: _named(name) for family, name in {**FAMILIES, **NARROWING}.items()}
_TITLES = {
    family: re.compile(rf"(?:(?:the|license) )?(?:{name})(?: (?:version|v))?(?: ?{_VERSION}.*)?")
    for family, name in {**FAMILIES, **NARROWING}.items()
}


def versions(text: str) -> dict[str, set[str]]:
    """Return the families that a text names anywhere, each with the versions that stand beside its name."""
    words = _words(text)
    return {
        family: {
            version.removeprefix("v").removesuffix(".0") for match in matches for version in match.groups() if version
        }
        for family, pattern in _PATTERNS.items()
        if (matches := list(pattern.finditer(words)))
    }


def titles(text: str) -> Iterator[str]:
    """Yield the families whose name is a line of the text, as above the text of a licence."""
    lines = {_words(line) for line in text.splitlines()}
    return (family for family, title in _TITLES.items() if any(map(title.fullmatch, lines)))


def _words(text: str) -> str:
    """Return a text without punctuation and the marks of comments, in one spelling."""
    words = re.findall(r"[a-z0-9]+(?:\.[0-9]+)*", re.sub(r"^[ \t]*dnl\b", "", text.lower(), flags=re.MULTILINE))
    return " ".join(words).replace("licence", "license")
