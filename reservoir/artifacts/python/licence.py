"""The licence that a wheel states in its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from packaging.metadata import RawMetadata, parse_email

from reservoir.artifacts.licence import Found, by_sentences, expression, spdx
from reservoir.artifacts.python import core_metadata

# what stands in metadata for a licence
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "LicenseRef-BSD",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Zope Public License": "ZPL-2.1",
    "zlib/libpng License": "Zlib",
    "Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
}


# what leaves a version open: any name that begins so may be meant
FAMILIES = {
    "BSD License": "BSD",
    "GNU Affero General Public License": "AGPL",
    "GNU General Public License (GPL)": "GPL",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL",
    "GNU Free Documentation License (FDL)": "GFDL",
}
# what says of an expression's name that it is a family
OPEN = {"LicenseRef-BSD": "BSD"}
PLACES = ("License-Expression", "License", "Classifier")
# what tools write where nobody said anything
NOTHING = ("", "unknown", "none", "n/a")


@dataclass(frozen=True)
class _Said:
    """What one place of the metadata says: `names` that it gives or allows, and the whole of it where that is known.

    `families` are those of the names that stand for any that begins so.
    """

    place: str
    names: frozenset[str]
    whole: str | None
    families: frozenset[str] = frozenset()

    def fits(self, other: _Said) -> bool:
        """Say whether both name the same licences, held together alike; a family stands for each of its members."""
        families = self.families | other.families
        alike = all(
            any(_same(one, name, families) for name in theirs)
            for mine, theirs in ((self.names, other.names), (other.names, self.names))
            for one in mine
        )
        # several classifiers do not say whether one may choose
        if not alike or "Classifier" in (self.place, other.place) or not self.whole or not other.whole:
            return alike
        return _shape(self.whole, families) == _shape(other.whole, families)

    def __str__(self) -> str:
        return f"{self.place} says {self._words}"

    @property
    def _words(self) -> str:
        return self.whole if self.whole and self.place != "Classifier" else " and ".join(sorted(self.names))


def read(path: Path) -> Found:
    """Return the licence of a wheel; raises ValueError where it has no metadata.

    It is known where every place that says one can be read, and none contradicts another.
    """
    raw, unread = parse_email(core_metadata.read(path))
    try:
        # the parser sorts out what stands twice, and either of them could be meant
        if odd := [place for place in PLACES if place.lower() in unread]:
            raise _UnclearError(f"{odd[0]} is said twice, or is no text")
        places = list(_places(raw))
    except _UnclearError as error:
        return Found(None, f"cannot be told: {error}")
    for one, other in combinations(places, 2):
        if not one.fits(other):
            return Found(None, f"contradiction: {one}, {other}")
    known = [place.whole for place in places if place.whole]
    source = " and ".join(place.place for place in places)
    # of what fits, the more exact word counts
    exact = sorted(known, key=lambda words: "LicenseRef-BSD" in words)
    if places and not exact:
        return Found(None, f"cannot be told: {places[0].place}: {' and '.join(sorted(places[0].names))}")
    return Found(exact[0], source) if exact else Found()


class _UnclearError(Exception):
    """Words that say a licence, and nobody can tell which."""


def _places(raw: RawMetadata) -> Iterator[_Said]:
    for key, place in (("license_expression", "License-Expression"), ("license", "License")):
        text = str(raw.get(key, "")).strip()
        if text.lower() not in NOTHING:
            yield _text(place, text)
    titles = [[" ".join(part.split()) for part in line.split("::")] for line in raw.get("classifiers", [])]
    licences = [" :: ".join(parts[1:]) for parts in titles if parts[0].lower() == "license"]
    # without a name behind it, it says that there is one
    words = {re.sub(r"^OSI Approved( :: |$)", "", title, flags=re.IGNORECASE) for title in licences}
    if words := words - {""}:
        yield _classified(sorted(words))


def _text(place: str, text: str) -> _Said:
    if words := expression(text) if "\n" not in text else None:
        keys = [str(name) for name in spdx().license_keys(words)]
        names = frozenset(OPEN.get(name, name) for name in keys)
        return _Said(place, names, words, names & set(OPEN.values()))
    if "\n" in text and (found := by_sentences(text)):
        # by a sentence a text is not known as a whole: another place has to say it, too
        return _Said(place, found, None, found)
    raise _UnclearError(f"{place}: {_shown(text)}")


def _classified(words: list[str]) -> _Said:
    known = {title.lower(): name for title, name in CLASSIFIERS.items()}
    open_ = {title.lower(): name for title, name in FAMILIES.items()}
    strange = [word for word in words if word.lower() not in known and word.lower() not in open_]
    if strange:
        raise _UnclearError(f"Classifier: {_shown(strange[0])}")
    titles = {word.lower() for word in words}
    named = sorted({known[title] for title in titles if title in known})
    families = frozenset(open_[title] for title in titles if title in open_)
    names = frozenset(open_.get(title) or known[title] for title in titles)
    # several classifiers do not say whether one may choose
    whole = None if titles - known.keys() else expression(" AND ".join(named))
    return _Said("Classifier", names, whole, families)


def _shown(text: str) -> str:
    """Return the first words of a text, as far as a terminal may be shown them."""
    return "".join(letter if letter.isprintable() else "?" for letter in text.splitlines()[0][:80])


def _same(one: str, other: str, families: Set[str]) -> bool:
    members = [name for family, name in ((one, other), (other, one)) if family in families]
    return one == other or any(name.startswith((f"{one}-", f"{other}-")) for name in members)


def _shape(whole: str, families: Set[str]) -> str:
    """Return how the names of an expression hold together, with a family in the place of each of its members."""

    def family(found: re.Match[str]) -> str:
        name = OPEN.get(found[0], found[0])
        return next((f"LicenseRef-{family}" for family in sorted(families) if _same(family, name, {family})), name)

    return str(spdx().parse(re.sub(r"[^\s()]+", family, whole), validate=False).simplify().render())
