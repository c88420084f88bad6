"""Licences as packages state them, in SPDX words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from license_expression import ExpressionError, ExpressionParseError, Licensing, get_spdx_licensing

WORDS = {"mit": "MIT", "mit license": "MIT", "the mit license": "MIT", "apache 2.0": "Apache-2.0",
         "apache license 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0", "apache 2": "Apache-2.0",
         "bsd": "LicenseRef-BSD", "bsd license": "LicenseRef-BSD", "bsd 3-clause": "BSD-3-Clause",
         "bsd-3-clause license": "BSD-3-Clause", "isc license": "ISC", "mpl 2.0": "MPL-2.0",
         "apache software license": "Apache-2.0", "apache license version 2.0": "Apache-2.0",
         "apache-2.0 license": "Apache-2.0", "apache 2.0 license": "Apache-2.0", "new bsd": "BSD-3-Clause",
         "3-clause bsd license": "BSD-3-Clause", "3-clause bsd": "BSD-3-Clause", "bsd 3-clause license": "BSD-3-Clause",
         "modified bsd license": "BSD-3-Clause", "2-clause bsd": "BSD-2-Clause", "bsd 2-clause": "BSD-2-Clause",
         "simplified bsd": "BSD-2-Clause", "psf": "PSF-2.0", "psf license": "PSF-2.0", "isc": "ISC", "expat": "MIT",
         "mpl2": "MPL-2.0", "mpl-2.0 license": "MPL-2.0", "public domain": "LicenseRef-Public-Domain",
         "gplv3": "GPL-3.0-only", "gplv3+": "GPL-3.0-or-later", "gplv2": "GPL-2.0-only", "gplv2+": "GPL-2.0-or-later",
         "lgplv3": "LGPL-3.0-only", "lgplv3+": "LGPL-3.0-or-later", "agplv3": "AGPL-3.0-only",
         "agplv3+": "AGPL-3.0-or-later"}  # fmt: skip
# the sentences by which a whole text is known, the narrower ones first
TEXTS = {
    "gnu affero general public license": "AGPL",
    "gnu lesser general public license": "LGPL",
    "gnu library general public license": "LGPL",
    "gnu general public license": "GPL",
    "permission is hereby granted, free of charge": "MIT",
    "redistribution and use in source and binary forms": "BSD",
    "apache license": "Apache-2.0",
    "mozilla public license": "MPL",
    "permission to use, copy, modify, and/or distribute": "ISC",
}
# the head of a whole text of GNU's, which ends with a day: `Version 3, 29 June 2007`
HEAD = re.compile(
    r"(gnu (?:affero |lesser |library )?general public license) version ([123](?:\.[01])?), (?:\d+ )?[a-z]+ \d{4}"
)
# what stands before the lines of a comment, and Debian's dot for an empty line
MARKS = re.compile(r"^[ \t]*(?:[*#;%>|.]+|//+|dnl\b)(?=\s)", re.MULTILINE)
FAILED = "cannot be read"


@dataclass(frozen=True)
class Found:
    """The licence of a file, None where it is not known; `source` says where it stands.

    `same_as` names the package whose copyright file stands for this one's, too.
    """

    expression: str | None = None
    source: str = ""
    same_as: str = ""

    @property
    def failed(self) -> bool:
        """Say whether the file could not be read, which another try may mend."""
        return self.source.startswith(FAILED)


def expression(text: str) -> str | None:
    """Return an SPDX expression in its usual form; None where it is not one."""
    text = WORDS.get(text.strip().lower(), text.strip())
    if not text or len(text) > 2000:
        return None
    try:
        parsed = spdx().parse(text, validate=False)
    except (ExpressionError, ExpressionParseError):
        return None
    strange = [name for name in spdx().unknown_license_keys(parsed) if not name.startswith("LicenseRef-")]
    return None if parsed is None or strange else str(parsed.render())


def by_sentences(text: str) -> frozenset[str]:
    """Return the names of the licences whose texts are in `text`, as far as a sentence of theirs tells."""
    found = named(text)
    # the texts of the narrower ones of GNU's name the wider ones
    gnu = [name for name in found if name.endswith("GPL")][:1]
    return frozenset([name for name in found if not name.endswith("GPL")] + gnu)


def named(text: str) -> list[str]:
    """Return the names of all licences of which a sentence is in `text`, the narrower ones first."""
    flat = _flat(text)
    return [name for sentence, name in TEXTS.items() if sentence in flat]


def headed(text: str) -> list[str]:
    """Return the names with versions, as `LGPL-2.1`, of GNU's texts whose heads are in `text`."""
    flat = _flat(text)
    return [f"{TEXTS[sentence]}-{version}" for sentence, version in HEAD.findall(flat)]


def _flat(text: str) -> str:
    """Return a text in one line, without the marks of comments before its lines."""
    return " ".join(MARKS.sub("", text.lower()).split())


@cache
def spdx() -> Licensing:
    """Return what knows the SPDX names of licences, made once for all threads."""
    licensing = get_spdx_licensing()
    # what finds the names is made at the first use, and a second thread would find it half made
    licensing.get_advanced_tokenizer()
    return licensing


@cache
def spdx_names() -> Mapping[str, str]:
    return {name.lower(): name for name in spdx().known_symbols}
