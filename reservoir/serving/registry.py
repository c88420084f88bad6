"""Another container registry than the site's, which gets the published images that it lacks."""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Any

import httpx

from common import process
from common.errors import NotFoundError, UnavailableError
from common.progress import Progress, silent
from reservoir.artifacts.image import oci, storage

ACCEPT = ", ".join(oci.MEDIA_TYPES)


def push(root: Path, registry: str, ca: Path | None, progress: Progress = silent) -> list[str]:
    """Push every published image whose digest the registry lacks; return their references.

    `registry` is host:port and speaks TLS; `ca` is the file of the authority that signed its certificate. The site's
    own reads the publication and lacks nothing. Raises UnavailableError where it does not answer.
    """
    index = root / "current" / "images" / "index.json"
    if not index.is_file():
        raise NotFoundError("nothing was published yet", where=str(index), hint="run `penstock reservoir publish`")
    pushed = []
    with _client(registry, ca) as http, tempfile.TemporaryDirectory() as certificates:
        if ca:
            shutil.copyfile(ca, Path(certificates) / "ca.crt")
        for image in json.loads(index.read_text())["images"]:
            reference = f"{image['name']}:{image['tag']}"
            if _digest(http, image["name"], image["tag"]) != image["digest"]:
                progress(f"push {reference}")
                _copy(index.parent.resolve() / storage.LAYOUT / "blobs/sha256", image, registry, certificates)
                pushed.append(reference)
    return pushed


def _client(registry: str, ca: Path | None) -> httpx.Client:
    if ca and not ca.is_file():
        raise NotFoundError("there is no such file", where=str(ca), hint="give the file of the site's CA")
    context = ssl.create_default_context(cafile=str(ca) if ca else None)
    # the registry is a neighbour: a proxy for the outside world does not know it
    return httpx.Client(base_url=f"https://{registry}", verify=context, timeout=30, trust_env=False)


def _digest(http: httpx.Client, name: str, tag: str) -> str | None:
    """Return the digest that the registry holds under a tag, or None."""
    try:
        answer = http.head(f"/v2/{name}/manifests/{tag}", headers={"Accept": ACCEPT})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise UnavailableError(
            f"the registry does not answer: {error}",
            where=str(http.base_url),
            hint="start the registry, or correct its address",
        ) from error
    digest: str | None = answer.headers.get("docker-content-digest")
    return digest


def _copy(blobs: Path, image: dict[str, Any], registry: str, certificates: str) -> None:
    """Push one image as it is, with every architecture, so that its digest stays the same."""
    skopeo = process.require("skopeo", "skopeo")
    options = ["--quiet", "--all", "--preserve-digests", f"--dest-cert-dir={certificates}"]
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        _lay_out(blobs, image["digest"].removeprefix("sha256:"), Path(folder))
        words = [skopeo, "--insecure-policy", "copy", *options, f"dir:{folder}"]
        process.run([*words, f"docker://{registry}/{image['name']}:{image['tag']}"])


def _lay_out(blobs: Path, sha256: str, folder: Path) -> None:
    """Link an image's blobs as skopeo's `dir:` has them: its OCI layouts take no manifests of Docker's kind."""
    document = oci.read((blobs / sha256).read_bytes(), sha256)
    (folder / "manifest.json").symlink_to(blobs / sha256)
    for child in document.manifests:
        (folder / f"{child.sha256}.manifest.json").symlink_to(blobs / child.sha256)
    manifests = [oci.read((blobs / child.sha256).read_bytes(), child.sha256) for child in document.manifests]
    for part in {part.sha256 for manifest in manifests or [document] for part in manifest.parts}:
        (folder / part).symlink_to(blobs / part)
