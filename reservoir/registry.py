"""Bring the published images into a container registry that lacks them."""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
from pathlib import Path

import httpx

from reservoir import process
from reservoir.errors import NotFoundError, UnavailableError
from reservoir.progress import Progress, silent

ACCEPT = "application/vnd.oci.image.manifest.v1+json"


def push(root: Path, registry: str, ca: Path | None, progress: Progress = silent) -> list[str]:
    """Push every published image whose digest the registry lacks; return their references.

    `registry` is host:port and speaks TLS; `ca` is the file of the authority that signed its certificate.
    """
    index = root / "current" / "images" / "index.json"
    if not index.is_file():
        raise NotFoundError("nothing was published yet", where=str(index), cure="run `penstock reservoir publish`")
    pushed = []
    with _client(registry, ca) as http, tempfile.TemporaryDirectory() as certificates:
        if ca:
            shutil.copyfile(ca, Path(certificates) / "ca.crt")
        for image in json.loads(index.read_text())["images"]:
            reference = f"{image['name']}:{image['tag']}"
            if _digest(http, image["name"], image["tag"]) != image["digest"]:
                progress(f"push {reference}")
                archive = index.parent / image["archive"]
                _copy(archive, image["tag"], f"{registry}/{reference}", certificates)
                pushed.append(reference)
    return pushed


def _client(registry: str, ca: Path | None) -> httpx.Client:
    if ca and not ca.is_file():
        raise NotFoundError("there is no such file", where=str(ca), cure="give the file of the site's CA")
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
            cure="start the registry, or correct its address",
        ) from error
    digest: str | None = answer.headers.get("docker-content-digest")
    return digest


def _copy(archive: Path, tag: str, destination: str, certificates: str) -> None:
    """Push one archive as it is, so that its digest stays the same."""
    skopeo = process.require("skopeo", "skopeo")
    command = [skopeo, "--insecure-policy", "copy", "--quiet", "--preserve-digests", f"--dest-cert-dir={certificates}"]
    process.run([*command, f"oci-archive:{archive}:{tag}", f"docker://{destination}"])
