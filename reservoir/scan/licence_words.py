"""Names of licences that SPDX does not know: which of them are known well enough, and which may be a denied one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reservoir.artifacts.licence_names import FAMILIES

# a name that no list of licences has; who made it stands before the name
OWN = re.compile(r"LicenseRef-((?:Debian|Fedora|Callaway)-)?(.+)", re.DOTALL)
# one of a family, of a version or of any, as `GPL-3` and `GPL-3-or-later-with-Bison-exception`
FAMILY = re.compile(
    rf"((?:{'|'.join(FAMILIES)})(?:-\d(?:\.\d)?)?|BSD)(?:-only|-or-later)?(?:-no-invariants?)?"
    r"(-(?:with-)?.*exceptions?)?",
    re.IGNORECASE,
)
# what a denied name stands for in other words
OTHERWISE = {"AGPL": ("AGPL", "AFFERO", "GNU"), "GPL": ("GPL", "GNU"), "LGPL": ("LGPL", "LESSER", "GNU")}
# names that Debian has for another licence, and the makers of a denied one for theirs
SHARED = {"BUSL": ("bsl", "bsl-1")}
# words that say what kind of licence a distribution means, whoever wrote it
KINDS = frozenset({
    "all-permissive", "apache", "artistic", "boost", "bsd", "bsd-like", "bsd2", "bsd3", "bsdish", "cc0", "expat",
    "fsfap", "fsful", "fsfullr", "isc", "khronos", "mit", "openldap", "openssl", "pd", "permissive", "psf",
    "public-domain", "publicdomain", "sil", "ssleay", "tcl", "unicode", "unlimited", "x11", "zlib",
})  # fmt: skip
# words that take back what the kind allows, or say that more stands beside it
NARROWING = frozenset({
    "and", "commercial", "commons", "copyleft", "custom", "derivatives", "eula", "nc", "nd", "network",
    "noderivs", "non", "noncommercial", "or", "proprietary", "restricted", "server",
})  # fmt: skip
# Debian's names for terms of files in the packages that nearly every system has, which tell no kind
COMMON = frozenset({
    "autoconf", "bsl", "bsl-1", "bsl-1.0", "bsla", "bzip", "caramel", "compaq", "config-h", "configure", "crc32",
    "cryptogams", "crystalclear", "custom-sil-open-font-license", "custom-unicode", "dlmalloc",
    "dont-change-the-gpl", "edl-1", "edl-1.0", "f5", "fsf-manpages", "gap", "gap-configure",
    "gap-fsf", "gap-makefile.in", "gsm", "hp", "hsieh-derivative", "ibm", "ibm-as-is", "installsh", "jcg",
    "kempf", "less", "mingw-runtime", "mlaa", "nist", "oldboost1", "oldboost2", "oldboost3", "openssh", "pcre",
    "perl", "python", "regcomp", "rfc-reference", "rfc-special", "rra-keep-this-notice",
    "sgi", "sgi-1.1", "sgi-2", "spencer", "sqlite", "sun", "text-tabs", "tinyscheme", "uc", "ufl-1.0", "umich",
    "unencumbered", "webp", "x", "xen-interface", "xpm",
})  # fmt: skip
BY_ANYBODY = frozenset({"bsd", "public-domain"})


def in_doubt(name: str, denied: Iterable[str]) -> bool:
    """Say whether a `LicenseRef-` may be one of the denied licences; what is not known well may be any of them."""
    own = OWN.fullmatch(name)
    if not own:
        return False
    distribution, word = own[1], own[2]
    stems = {stem for key in denied for stem in _stems(key)}
    family = FAMILY.fullmatch(word.replace("GFDL-NIV", "GFDL"))
    if family:
        # an exception allows more, and could still hide another licence
        exception = family[2] or ""
        takes_back = not NARROWING.isdisjoint(exception.lower().split("-"))
        return any(_member(key, family[1]) for key in denied) or _tells(exception, stems) or takes_back
    if _tells(word, stems) or any(word.lower() in SHARED.get(stem, ()) for stem in stems):
        return True
    return word.lower() not in BY_ANYBODY if not distribution else not _well_known(word.lower())


def _well_known(word: str) -> bool:
    words = set(word.split("-"))
    pairs = {f"{one}-{other}" for one, other in zip(word.split("-"), word.split("-")[1:], strict=False)}
    return word in COMMON or (bool((words | pairs) & KINDS) and not words & NARROWING)


def _stems(key: str) -> tuple[str, ...]:
    """Return what other spellings of a licence have in common, as `AGPL` of `AGPL-3.0-only`."""
    stem = key.partition("-")[0].upper()
    return OTHERWISE.get(stem, (stem,))


def _tells(word: str, stems: Iterable[str]) -> bool:
    # a stem of a letter or two is part of many words
    parts = word.upper().split("-")
    return any(stem in part if len(stem) > 2 else stem == part for stem in stems for part in parts)


def _member(key: str, family: str) -> bool:
    name, family = key.upper(), family.upper()
    return name == family or name.startswith((f"{family}-", f"{family}."))
