"""Small real parts for the tests of the reservoir: wheels, bundles, keys."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from pydantic import TypeAdapter

from reservoir.artifacts.image import oci
from reservoir.bundle import bundles
from reservoir.contents.artifact import A, Artifact, DebianArtifact, FileArtifact, ImageArtifact, PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import SetVersions, TargetRecord
from reservoir.intake import take as intake
from reservoir.publication.publish import publish
from reservoir.signing.ed25519 import SigningKey
from reservoir.signing.keychain import Keychain

ARTIFACT: TypeAdapter[Artifact] = TypeAdapter(Artifact)
"""Any kind of artifact, read and written by itself, which the product does as parts of lists only."""

take = partial(intake.take, trust_first=True)
"""Import into a site that believes the first bundle, so that tests of other things need no key."""

TARGET = TargetRecord(name="debian12", os="debian", release="bookworm", arch="amd64", python="3.11")
MANIFEST = """\
schema: 1
name: small
version: "1.0"
targets:
  - {name: debian12, release: bookworm, python: "3.11", bootstrap: true}
python:
  requirements: [rich>=13]
debian:
  nodes: [jq]
images:
  - {name: small/base, tag: "1", target: debian12, packages: [python3]}
"""
STANZA = """\
Package: {name}
Version: {version}
Architecture: amd64
Maintainer: A Person <person@example.org>
Depends: libc6
Description: a package for tests
"""


def wheel(folder: Path, name: str = "demo", version: str = "1.0", body: str = "", requires: Sequence[str] = ()) -> Path:
    """Write a wheel that installs one module; the same contents give the same bytes, whenever they are written."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{body}",
        "deeper/other-9.dist-info/METADATA": "Name: other\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.9\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(file), content)
    return path


def artifact(path: Path, kind: type[A], name: str, version: str = "1.0", **metadata: object) -> A:
    """Describe a file as an artifact."""
    content = path.read_bytes()
    return kind.model_validate(
        {
            "name": name,
            "version": version,
            "filename": path.name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "origin": "made for a test",
            "targets": ["debian12"],
            "metadata": metadata,
        }
    )


def parts(folder: Path, body: str = "") -> list[tuple[Artifact, Path]]:
    """Make one artifact of each kind in `folder`; `body` makes other contents of the same names."""
    folder.mkdir(parents=True, exist_ok=True)
    package = wheel(folder, body=body)
    deb = folder / "hello_1.0_amd64.deb"
    deb.write_bytes(b"deb" + body.encode() + b"." * 300_000)
    image = image_blobs(folder, body)
    file = folder / "notes.txt"
    file.write_text(f"notes {body}")
    return [
        (artifact(package, PythonArtifact, "demo"), package),
        (artifact(deb, DebianArtifact, "hello", stanza=STANZA.format(name="hello", version="1.0")), deb),
        *image_parts(folder, image),
        (artifact(file, FileArtifact, "notes.txt"), file),
    ]


def image_blobs(folder: Path, body: str = "", architectures: Sequence[str] = ("amd64",)) -> str:
    """Write the blobs of an image into a folder, each named by its hash; return that of its manifest or index.

    The layer is no tar, which nobody looks at who only carries it.
    """

    def keep(content: bytes) -> tuple[str, int]:
        sha256 = hashlib.sha256(content).hexdigest()
        (folder / sha256).write_bytes(content)
        return sha256, len(content)

    layer = oci.Layer(*keep(b"layer" + body.encode() + b"." * 2_000_000), "0" * 64)
    entries = []
    for arch in architectures:
        config = oci.config([layer], arch=arch, created="2000-01-01T00:00:00Z", start={}, steps=["test"])
        keep(config)
        sha256, size = keep(oci.manifest(config, [layer]))
        platform = {"architecture": arch, "os": "linux"}
        entries.append({"mediaType": oci.MANIFEST, "digest": f"sha256:{sha256}", "size": size, "platform": platform})
    if len(entries) > 1:
        sha256, _ = keep(oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries}))
    return sha256


def image_parts(folder: Path, sha256: str, name: str = "demo/python", tag: str = "1") -> list[tuple[Artifact, Path]]:
    """Describe an image and its parts, whose blobs lie in a folder."""
    digest = f"sha256:{sha256}"
    words = {"tag": tag, "digest": digest, "session": True, "media_type": oci.MANIFEST, "architectures": ["amd64"]}
    image = artifact(folder / sha256, ImageArtifact, name, tag, **words)
    image = image.model_copy(update={"filename": oci.filename(f"{name}:{tag}")})
    parts = oci.artifacts(image, {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})
    every: list[Artifact] = [image, *parts]
    return [(part, folder / part.sha256) for part in every]


def make_bundle(
    folder: Path,
    key: SigningKey,
    *,
    name: str = "small",
    version: str = "1.0",
    body: str = "",
    created: str = "2026-01-02T03:04:05Z",
    expires: str | None = None,
    version_sets: Sequence[SetVersions] = (),
    made: Sequence[tuple[Artifact, Path]] | None = None,
    targets: Sequence[TargetRecord] = (TARGET,),
    attachments: Mapping[str, bytes] = MappingProxyType({"sbom.cdx.json": b'{"components": [], "dependencies": []}'}),
    chain: Keychain | None = None,
) -> Path:
    """Write a small signed bundle of every kind of artifact below `folder`; return its folder."""
    made = parts(folder / f"parts-{name}-{version}", body) if made is None else made
    blobs = folder / f"blobs-{name}-{version}"
    blobs.mkdir(parents=True, exist_ok=True)
    for described, path in made:
        (blobs / described.sha256).write_bytes(path.read_bytes())
    bundle = Bundle(
        name=name,
        version=version,
        created=created,
        expires=expires,
        version_sets=list(version_sets),
        targets=list(targets),
        artifacts=[described for described, _ in made],
        installer={file: hashlib.sha256(bundles.installer(file)).hexdigest() for file in bundles.INSTALLER},
        attachments={file: hashlib.sha256(content).hexdigest() for file, content in attachments.items()},
    )
    # copies, so that a test may damage the bundle and nothing else
    final = bundles.assemble(bundle, [], key, folder / "out", attachments, chain=chain)
    for sha256 in bundle.sizes():
        (final / bundles.BLOBS / sha256).write_bytes((blobs / sha256).read_bytes())
    return final


def flip_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def publish_versions(root: Path, key: SigningKey, count: int) -> Path:
    """Publish so many versions of one bundle, each with contents of its own, at a site that is made in `root`."""
    for number in range(1, count + 1):
        take(make_bundle(root.parent / "made", key, version=f"{number}.0", body=f"body {number}"), root)
        publish(root)
    return root


def copied(site: Path, target: Path) -> Path:
    """Copy a site with its links: what has one content stays one file."""
    subprocess.run(["cp", "--archive", site, target], check=True)
    return target


def contents(root: Path) -> dict[str, bytes]:
    """Everything that counts at a site, byte by byte."""
    found = [path for path in root.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}
