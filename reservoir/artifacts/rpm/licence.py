"""The licence that an RPM package states in its repository's metadata."""

from __future__ import annotations

import re

from reservoir.artifacts.licence import Found, expression
from reservoir.contents.artifact import RpmArtifact

FEDORA = {"ASL 2.0": "Apache-2.0", "MPLv2.0": "MPL-2.0", "MPLv1.1": "MPL-1.1", "BSD": "LicenseRef-BSD",
          "Public Domain": "LicenseRef-Public-Domain", "Python": "PSF-2.0", "Boost": "BSL-1.0"}  # fmt: skip


def stated(artifact: RpmArtifact) -> Found:
    """Return the licence of a package."""
    text = artifact.metadata.license
    words = expression(text) or expression(_fedora(text))
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:80])
    return Found(words, "License of the package" if words or not text else f"cannot be told: {shown}")


def _fedora(text: str) -> str:
    """Return what the packages of RPM distributions said before they took SPDX: `GPLv2+ and (ASL 2.0 or BSD)`."""

    def gnu(found: re.Match[str]) -> str:
        version = found[2] if "." in found[2] else f"{found[2]}.0"
        return f"{found[1]}-{version}-{'or-later' if found[3] else 'only'}"

    text = re.sub(r"\b([AL]?GPL)v([23](?:\.1)?)(\+)?(?![\w.])", gnu, text)
    for word, name in FEDORA.items():
        text = re.sub(rf"\b{re.escape(word)}(?![\w.-])", name, text)
    return text
