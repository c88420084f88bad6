"""Facts that the SBOM of a bundle says and its list does not: licences, and which packages are inside which image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common.errors import IntegrityError
from reservoir.artifacts.image.system import Installed

SBOM = "sbom.cdx.json"
SOURCE = "penstock:licence-source"
ECOSYSTEM, ADVISED = "penstock:ecosystem", "penstock:advised"
# what stands with an image all of whose lists of packages were read
READ = "the packages of its system, as its layers list them"


@dataclass(frozen=True)
class Facts:
    """By the hash of a file: its licence as an SPDX expression with where that stands, and the images it is in.

    `installed` are the packages inside images from elsewhere, `unread` says why they cannot be told.
    """

    licences: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    images: Mapping[str, list[str]] = field(default_factory=dict)
    installed: Mapping[str, list[Installed]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def read(content: bytes, where: str) -> Facts:
    """Return the facts in an SBOM that `reservoir.bundle.sbom` made; raises IntegrityError where it is another's."""
    try:
        document = json.loads(content)
        components = {component["bom-ref"]: component for component in document["components"]}
        licences = {_sha256(ref): _licence(component) for ref, component in components.items()}
        listed = {_sha256(ref): component for ref, component in components.items() if "components" in component}
        installed = {sha256: [_installed(one) for one in image["components"]] for sha256, image in listed.items()}
        notes = {sha256: str(image["pedigree"]["notes"]) for sha256, image in listed.items()}
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
    return Facts(licences, images, installed, {sha256: note for sha256, note in notes.items() if note != READ})


def reference(kind: str, sha256: str) -> str:
    """Return how an SBOM of ours refers to a file; further names of the same bytes get a number behind it."""
    return f"{kind}:{sha256}"


def _sha256(ref: str) -> str:
    return ref.split(":")[1]


def _installed(component: Mapping[str, Any]) -> Installed:
    said = {entry["name"]: str(entry["value"]) for entry in component["properties"]}
    return Installed(str(component["name"]), said[ECOSYSTEM], said[ADVISED], str(component["version"]))


def _licence(component: Mapping[str, object]) -> tuple[str | None, str]:
    licences = component.get("licenses")
    properties = component.get("properties")
    expression = licences[0].get("expression") if isinstance(licences, list) and licences else None
    if isinstance(licences, list) and licences and "license" in licences[0]:
        expression = licences[0]["license"].get("id")
    named = {entry["name"]: entry["value"] for entry in properties} if isinstance(properties, list) else {}
    return expression, named.get(SOURCE, "")
