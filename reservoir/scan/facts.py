"""Facts that the SBOM of a bundle says and its list does not: licences, and which packages are inside which image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from common.errors import IntegrityError

SBOM = "sbom.cdx.json"
SOURCE = "penstock:licence-source"


@dataclass(frozen=True)
class Facts:
    """By the hash of a file: its licence as an SPDX expression with where that stands, and the images it is in."""

    licences: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    images: Mapping[str, list[str]] = field(default_factory=dict)


def read(content: bytes, where: str) -> Facts:
    """Return the facts in an SBOM that `reservoir.bundle.sbom` made; raises IntegrityError where it is another's."""
    try:
        document = json.loads(content)
        components = {component["bom-ref"]: component for component in document["components"]}
        licences = {_sha256(ref): _licence(component) for ref, component in components.items()}
        images: dict[str, list[str]] = {}
        for entry in document["dependencies"]:
            if entry["ref"].startswith("image:"):
                image = components[entry["ref"]]
                for inside in entry.get("dependsOn", []):
                    images.setdefault(_sha256(inside), []).append(f"{image['name']}:{image['version']}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"not the SBOM of a bundle: {error!r}", where=where, hint="get the bundle again from its maker"
        ) from error
    return Facts(licences, images)


def reference(kind: str, sha256: str) -> str:
    """Return how an SBOM of ours refers to a file; further names of the same bytes get a number behind it."""
    return f"{kind}:{sha256}"


def _sha256(ref: str) -> str:
    return ref.split(":")[1]


def _licence(component: Mapping[str, object]) -> tuple[str | None, str]:
    licences = component.get("licenses")
    properties = component.get("properties")
    expression = licences[0].get("expression") if isinstance(licences, list) and licences else None
    if isinstance(licences, list) and licences and "license" in licences[0]:
        expression = licences[0]["license"].get("id")
    named = {entry["name"]: entry["value"] for entry in properties} if isinstance(properties, list) else {}
    return expression, named.get(SOURCE, "")
