"""The bill of materials of a bundle, in CycloneDX 1.6: the same bytes for the same contents."""

from __future__ import annotations

import hashlib
import json
import re
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

from reservoir.contents.model import Artifact, Bundle, LockedImage, TargetRecord
from reservoir.scan.facts import SOURCE, reference
from reservoir.scan.inventory import of_target
from reservoir.scan.licences import Found

SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:penstock:sbom")
# counts up when the same contents are written otherwise
FORM = 2
PACKAGES = ("python", "debian", "rpm")
ARCHITECTURE = re.compile(r"^Architecture: *(\S+)$", re.MULTILINE)


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


def purl(artifact: Artifact, targets: Mapping[str, TargetRecord]) -> PackageURL:
    """Return the address of an artifact as other tools write it."""
    target = targets[artifact.targets[0]] if artifact.targets else None
    match artifact.kind:
        case "python":
            return PackageURL("pypi", None, artifact.name, artifact.version)
        case "debian":
            found = ARCHITECTURE.search(artifact.metadata.get("stanza", ""))
            arch = found[1] if found else target.arch if target else ""
            words = {"arch": arch, "distro": target.release if target else ""}
            return PackageURL("deb", "debian", artifact.name, artifact.version, words)
        case "rpm":
            epoch, _, version = artifact.version.rpartition(":")
            space = (of_target(target) or "").partition(":")[0].lower().replace(" ", "-") if target else ""
            words = {"arch": str(artifact.metadata.get("arch") or ""), "epoch": epoch.removeprefix("0")}
            words |= {"distro": f"{space}-{target.release}" if target and space else ""}
            return PackageURL("rpm", space.replace("red-hat", "redhat"), artifact.name, version, words)
        case "image":
            space, _, name = artifact.name.rpartition("/")
            words = {"tag": artifact.version, "repository_url": artifact.name if space else ""}
            return PackageURL("oci", None, name, f"sha256:{artifact.sha256}", words)
        case _:
            words = {"checksum": f"sha256:{artifact.sha256}"}
            return PackageURL("generic", None, artifact.filename, artifact.version, words)


def _referred(artifacts: Iterable[Artifact]) -> Iterator[tuple[str, Artifact]]:
    """Yield every artifact with what the document calls it; the same bytes under two names are two components."""
    met: Counter[str] = Counter()
    for artifact in artifacts:
        ref = reference(artifact.kind, artifact.sha256)
        met[ref] += 1
        yield ref if met[ref] == 1 else f"{ref}:{met[ref]}", artifact


def _component(artifact: Artifact, ref: str, targets: Mapping[str, TargetRecord], licence: Found) -> Component:
    properties = [Property(name="penstock:kind", value=artifact.kind)]
    properties += [Property(name="penstock:filename", value=artifact.filename)]
    properties += [Property(name="penstock:target", value=name) for name in artifact.targets]
    if licence.source:
        properties.append(Property(name=SOURCE, value=licence.source))
    return Component(
        name=artifact.name,
        version=artifact.version,
        type=_type(artifact),
        bom_ref=ref,
        purl=purl(artifact, targets),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=artifact.sha256)],
        licenses=[LicenseExpression(licence.expression)] if licence.expression else [],
        properties=properties,
    )


def _type(artifact: Artifact) -> ComponentType:
    if artifact.kind == "image":
        return ComponentType.CONTAINER
    return ComponentType.LIBRARY if artifact.kind in PACKAGES else ComponentType.FILE


def _contents(bundle: Bundle, images: Sequence[LockedImage]) -> dict[str, list[str]]:
    """Return what each image was made of; images from elsewhere do not say."""
    made = {(image.name, image.tag): image for image in images}
    contents = {}
    for artifact in bundle.of_kind("image"):
        image = made.get((artifact.name, artifact.version))
        if image:
            debs = [reference("debian", sha256) for sha256 in (*image.base, *image.packages)]
            wheels = [reference("python", sha256) for sha256 in image.python]
            contents[reference("image", artifact.sha256)] = sorted({*debs, *wheels})
    return contents


def _tool() -> Component:
    return Component(name="penstock", version=metadata.version("penstock"), type=ComponentType.APPLICATION)
