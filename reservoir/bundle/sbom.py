"""The bill of materials of a bundle, in CycloneDX 1.6: the same bytes for the same contents.

The form is written here and held against its schema by a test: the library that writes it looks for each component
among all others, and takes 700 MB for 20,000 of them (ADR 31).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from types import MappingProxyType
from typing import Any

from packageurl import PackageURL

from reservoir.artifacts.image.contents import Contents
from reservoir.artifacts.kinds import describe
from reservoir.artifacts.licence import Found
from reservoir.contents.artifact import Artifact, ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.lock import LockedImage
from reservoir.contents.target import TargetRecord
from reservoir.scan.facts import ADVISED, ECOSYSTEM, READ, SOURCE, reference

SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:penstock:sbom")
# counts up when the same contents are written otherwise
FORM = 4


def make(
    bundle: Bundle,
    images: Sequence[LockedImage],
    licences: Mapping[str, Found],
    inside: Mapping[str, Contents] = MappingProxyType({}),
) -> bytes:
    """Return the document: every artifact with address, hash, targets and licence, and what each image is made of.

    `licences` are by hash, and so is what is `inside` images from elsewhere. It carries no time of its own, and its
    serial number comes from its contents.
    """
    targets = {target.name: target for target in bundle.targets}
    whole = f"bundle:{bundle.name}"
    referred = list(_referred(bundle.artifacts))
    contents = _contents(bundle, images)
    made = {ref: contents.get(reference(artifact.kind, artifact.sha256), []) for ref, artifact in referred}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": serial(bundle, images, licences, inside).urn,
        "metadata": {
            "component": {"bom-ref": whole, "type": "application", "name": bundle.name, "version": bundle.version},
            "tools": {"components": [_tool()]},
        },
        "components": [
            _component(artifact, ref, targets, licences.get(artifact.sha256, Found()))
            | (_installed(inside[artifact.sha256]) if artifact.sha256 in inside else {})
            for ref, artifact in referred
        ],
        "dependencies": [_dependency(ref, made[ref]) for ref in sorted(made)] + [_dependency(whole, sorted(made))],
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def serial(
    bundle: Bundle,
    images: Sequence[LockedImage],
    licences: Mapping[str, Found],
    inside: Mapping[str, Contents] = MappingProxyType({}),
) -> uuid.UUID:
    """Return the number that stands for everything that the document says."""
    said = {
        "form": FORM,
        "bundle": bundle.model_dump(mode="json", include={"name", "version", "targets", "artifacts"}),
        "contents": _contents(bundle, images),
        "licences": {sha256: [found.expression, found.source] for sha256, found in licences.items()},
        "tool": _tool()["version"],
        "inside": {sha256: _installed(contents) for sha256, contents in inside.items()},
    }
    return uuid.uuid5(SPACE, hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest())


def _referred(artifacts: Iterable[Artifact]) -> Iterator[tuple[str, Artifact]]:
    """Yield every artifact with what the document calls it; the same bytes under two names are two components."""
    met: Counter[str] = Counter()
    for artifact in artifacts:
        ref = reference(artifact.kind, artifact.sha256)
        met[ref] += 1
        yield ref if met[ref] == 1 else f"{ref}:{met[ref]}", artifact


def _component(artifact: Artifact, ref: str, targets: Mapping[str, TargetRecord], licence: Found) -> dict[str, Any]:
    described = describe(artifact, targets[artifact.targets[0]] if artifact.targets else None)
    said = [("penstock:filename", artifact.filename), ("penstock:kind", artifact.kind)]
    said += [(SOURCE, licence.source)] if licence.source else []
    said += [("penstock:target", name) for name in artifact.targets]
    component = {
        "bom-ref": ref,
        "type": described.form,
        "name": artifact.name,
        "version": artifact.version,
        "purl": PackageURL(*described.purl).to_string(),
        "hashes": [{"alg": "SHA-256", "content": artifact.sha256}],
        "properties": [{"name": name, "value": value} for name, value in said],
    }
    return component | ({"licenses": [{"expression": licence.expression}]} if licence.expression else {})


def _installed(contents: Contents) -> dict[str, Any]:
    """Return what stands in the component of an image from elsewhere: the packages of its system."""
    return {
        "components": [
            {
                "type": "library",
                "name": one.package,
                "version": one.version,
                "properties": [{"name": ECOSYSTEM, "value": one.ecosystem}, {"name": ADVISED, "value": one.advised}],
            }
            for one in contents.packages
        ],
        "pedigree": {"notes": contents.unread or READ},
    }


def _dependency(ref: str, inside: Sequence[str]) -> dict[str, Any]:
    return {"ref": ref, "dependsOn": list(inside)} if inside else {"ref": ref}


def _contents(bundle: Bundle, images: Sequence[LockedImage]) -> dict[str, list[str]]:
    """Return what each image was made of; images from elsewhere do not say."""
    made = {(image.name, image.tag): image for image in images}
    contents = {}
    for artifact in bundle.of_kind(ImageArtifact):
        image = made.get((artifact.name, artifact.version))
        if image:
            debs = [reference("debian", sha256) for sha256 in (*image.base, *image.packages)]
            wheels = [reference("python", sha256) for sha256 in image.python]
            contents[reference("image", artifact.sha256)] = sorted({*debs, *wheels})
    return contents


def _tool() -> dict[str, str]:
    return {"type": "application", "name": "penstock", "version": metadata.version("penstock")}
