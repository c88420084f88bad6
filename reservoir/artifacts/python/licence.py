"""The licence that a wheel states in its metadata."""

from __future__ import annotations

from pathlib import Path

from packaging.metadata import parse_email

from reservoir.artifacts.licence import Found, expression
from reservoir.artifacts.python import core_metadata

# what stands in metadata for a licence; the classifiers that leave a version or a choice open are not here
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


def read(path: Path) -> Found:
    """Return the licence of a wheel; raises ValueError where it has no metadata."""
    raw, _ = parse_email(core_metadata.read(path))
    if words := expression(raw.get("license_expression", "")):
        return Found(words, "License-Expression")
    stated = [line.rpartition(" :: ")[2] for line in raw.get("classifiers", []) if line.startswith("License :: ")]
    named = [CLASSIFIERS[word] for word in stated if word in CLASSIFIERS]
    text = raw.get("license", "")
    if "\n" not in text and (words := expression(text)) and (not named or "LicenseRef-BSD" in named):
        return Found(words, "License")
    if named:
        # several classifiers do not say whether one may choose
        return Found(expression(" AND ".join(sorted(set(named)))), "Classifier")
    return Found()
