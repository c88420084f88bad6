"""Small real parts for the tests of the reservoir: wheels, bundles, keys."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reservoir import bundle as bundles
from reservoir.model import Artifact, Bundle, TargetRecord

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


def wheel(folder: Path, name: str = "demo", version: str = "1.0", body: str = "") -> Path:
    """Write a wheel that installs one module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n{body}")
        archive.writestr("deeper/other-9.dist-info/METADATA", "Name: other\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.9\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def artifact(path: Path, kind: str, name: str, version: str = "1.0", **metadata: object) -> Artifact:
    """Describe a file as an artifact."""
    content = path.read_bytes()
    return Artifact.model_validate(
        {
            "kind": kind,
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
    image = folder / "demo_python_1.tar"
    image.write_bytes(b"tar" + body.encode() + b"." * 2_000_000)
    file = folder / "notes.txt"
    file.write_text(f"notes {body}")
    return [
        (artifact(package, "python", "demo"), package),
        (artifact(deb, "debian", "hello", stanza=STANZA.format(name="hello", version="1.0")), deb),
        (artifact(image, "image", "demo/python", tag="1", digest="sha256:" + "0" * 64, session=True), image),
        (artifact(file, "file", "notes.txt"), file),
    ]


def make_bundle(
    folder: Path,
    key: Ed25519PrivateKey,
    *,
    name: str = "small",
    version: str = "1.0",
    body: str = "",
    created: str = "2026-01-02T03:04:05Z",
    made: Sequence[tuple[Artifact, Path]] | None = None,
) -> Path:
    """Write a small signed bundle of every kind of artifact below `folder`; return its folder."""
    made = parts(folder / f"parts-{name}-{version}", body) if made is None else made
    blobs = folder / f"blobs-{name}-{version}"
    blobs.mkdir(exist_ok=True)
    for described, path in made:
        (blobs / described.sha256).write_bytes(path.read_bytes())
    bundle = Bundle(
        name=name,
        version=version,
        created=created,
        targets=[TARGET],
        artifacts=[described for described, _ in made],
        installer={file: hashlib.sha256(bundles.installer(file)).hexdigest() for file in bundles.INSTALLER},
    )
    # copies, so that a test may damage the bundle and nothing else
    final = bundles.assemble(bundle, [], key, folder / "out")
    for sha256 in bundle.sizes():
        (final / bundles.BLOBS / sha256).write_bytes((blobs / sha256).read_bytes())
    return final


def flip_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
