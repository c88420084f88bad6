"""The bill of materials of a bundle, in CycloneDX 1.6: the same bytes for the same contents."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from reservoir.artifacts.kinds import describe
from reservoir.artifacts.licence import Found
from reservoir.contents.artifact import Artifact, ImageArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.lock import LockedImage
from reservoir.contents.target import TargetRecord
from reservoir.scan.facts import SOURCE, reference

SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:penstock:sbom")
# counts up when the same contents are written otherwise
FORM = 2


def make(bundle: Bundle, images: Sequence[LockedImage], licences: Mapping[str, Found]) -> bytes:
    """Return the document: every artifact with address, hash, targets and licence, and what each image is made of.

    `licences` are by hash. It carries no time of its own, and its serial number comes from its contents.
    """
    targets = {target.name: target for target in bundle.targets}
    whole = Component(
        name=bundle.name, version=bundle.version, type=ComponentType.APPLICATION, bom_ref=f"bundle:{bundle.name}"
    )
    parts = [
        (artifact, _component(artifact, ref, targets, licences.get(artifact.sha256, Found())))
        for ref, artifact in _referred(bundle.artifacts)
    ]
    contents = _contents(bundle, images)
    bom = Bom(
        components=[part for _, part in parts],
        serial_number=serial(bundle, images, licences),
        metadata=BomMetaData(component=whole, tools=ToolRepository(components=[_tool()])),
        dependencies=[
            Dependency(whole.bom_ref, [Dependency(part.bom_ref) for _, part in parts]),
            *(
                Dependency(
                    part.bom_ref, [Dependency(BomRef(ref)) for ref in contents.get(reference(a.kind, a.sha256), [])]
                )
                for a, part in parts
            ),
        ],
    )
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    # the moment of writing is the only thing that differs between two runs
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def serial(bundle: Bundle, images: Sequence[LockedImage], licences: Mapping[str, Found]) -> uuid.UUID:
    """Return the number that stands for everything that the document says."""
    said = {
        "form": FORM,
        "bundle": bundle.model_dump(mode="json", include={"name", "version", "targets", "artifacts"}),
        "contents": _contents(bundle, images),
        "licences": {sha256: [found.expression, found.source] for sha256, found in licences.items()},
        "tool": _tool().version,
    }
    return uuid.uuid5(SPACE, hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest())


def _referred(artifacts: Iterable[Artifact]) -> Iterator[tuple[str, Artifact]]:
    """Yield every artifact with what the document calls it; the same bytes under two names are two components."""
    met: Counter[str] = Counter()
    for artifact in artifacts:
        ref = reference(artifact.kind, artifact.sha256)
        met[ref] += 1
        yield ref if met[ref] == 1 else f"{ref}:{met[ref]}", artifact


def _component(artifact: Artifact, ref: str, targets: Mapping[str, TargetRecord], licence: Found) -> Component:
    described = describe(artifact, targets[artifact.targets[0]] if artifact.targets else None)
    properties = [Property(name="penstock:kind", value=artifact.kind)]
    properties += [Property(name="penstock:filename", value=artifact.filename)]
    properties += [Property(name="penstock:target", value=name) for name in artifact.targets]
    if licence.source:
        properties.append(Property(name=SOURCE, value=licence.source))
    return Component(
        name=artifact.name,
        version=artifact.version,
        type=ComponentType(described.form),
        bom_ref=ref,
        purl=PackageURL(*described.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=artifact.sha256)],
        licenses=[LicenseExpression(licence.expression)] if licence.expression else [],
        properties=properties,
    )


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


def _tool() -> Component:
    return Component(name="penstock", version=metadata.version("penstock"), type=ComponentType.APPLICATION)
