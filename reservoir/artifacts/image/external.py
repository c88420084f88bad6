"""Images that exist already: locked with every part that they name, fetched by skopeo, carried bit by bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import process
from common.errors import ConflictError, InputError, IntegrityError, ProcessError, UnavailableError
from common.progress import Progress
from reservoir.artifacts.image import cosign, oci, signed
from reservoir.contents.artifact import ImageArtifact, ImageMetadata, ImagePart, ImageSignature
from reservoir.download.cache import Cache
from reservoir.manifest.model import ExternalImage

REGISTRY = "docker://"
# these say no digest of their own: the first conversion decides, and it gives the same bits every time
CONVERTED = ("docker-archive:", "docker-daemon:")
# a layer that is not compressed stays as it is
PLAIN = "--dest-oci-accept-uncompressed-layers"
HINT = "correct the source, or sign in with `skopeo login`; when it is gone for good, lock another one"


@dataclass(frozen=True)
class Puller:
    """Brings one image into the cache; `folder` is the manifest's, from which paths count, `where` names the image."""

    image: ExternalImage
    folder: Path
    where: str
    cache: Cache
    progress: Progress

    def lock(self, targets: Sequence[str]) -> list[ImageArtifact | ImagePart]:
        """Return the image and its parts; manifests are read, layers of a registry are not fetched yet.

        Raises InputError where an architecture that was asked for is not there, UnavailableError where the image
        cannot be read, IntegrityError where it has no signature of those who are to have signed it.
        """
        self.progress(f"read image {self.image.reference}")
        remote = self.image.source.startswith(REGISTRY)
        content = self._inspect(self.image.source) if remote else self._copied()
        signatures = self._require_signatures(oci.digest(content)) if self.image.signed_by else []
        asked = content
        documents = {self.cache.keep(content)[0]: content}
        document = oci.read(content, self.image.source)
        made = None
        if document.manifests:
            chosen = self._chosen(document)
            for child in chosen:
                documents[child.sha256] = self._kept(child.sha256)
                if oci.read(documents[child.sha256], self.image.source).manifests:
                    raise InputError(
                        f"{self.image.source} is an index of indexes: {child.digest} is one",
                        where=self.where,
                        hint="name an inner one by its digest",
                    )
            if len(chosen) == 1 < len(document.manifests):
                content = documents[chosen[0].sha256]
            elif len(chosen) < len(document.manifests):
                content = made = oci.reduced(content, [child.digest for child in chosen])
            self.cache.keep(content)
        document = oci.read(content, self.image.source)
        more: dict[str, object] = {"made": made.decode()} if made else {}
        if signatures:
            more |= {"signatures": signatures} | ({"signed": asked.decode()} if asked != content else {})
        image = self._described(content, document, targets, more)
        documents = {digest: text for digest, text in documents.items() if text != content} | {image.sha256: content}
        return [image, *oci.artifacts(image, documents)]

    def fetch(self, locked: ImageArtifact) -> None:
        """Bring every part of the locked image into the cache that lacks some.

        Raises UnavailableError where a registry has it no more, ConflictError where a local source holds another, or
        the lock lacks a signature.
        """
        self._require_kept(locked)
        missing = self._missing(locked)
        if missing and not self.image.source.startswith(REGISTRY):
            self.progress(f"read image {self.image.reference}")
            self._copied()
            missing = self._missing(locked)
        elif missing:
            self.progress(f"fetch image {self.image.reference}")
            self._pull(locked)
            missing = self._missing(locked)
        if missing:
            raise ConflictError(
                f"{self.image.source} is another image now: {', '.join(f'sha256:{sha256}' for sha256 in missing)} "
                "is not there any more",
                where=self.where,
                hint="make a new lock",
            )

    def _require_signatures(self, digest: str) -> list[ImageSignature]:
        """Return the signatures of the image as the registry has it by keys of `signed_by`, each with its key.

        Raises IntegrityError where there is none.
        """
        keys = self._keys()
        source = f"{repository(self.image.source)}:{cosign.tag(digest)}"
        try:
            found = list(cosign.signatures(self._inspect(source)))
            self._copy(source, [PLAIN], []) if found else None
        except UnavailableError as error:
            raise IntegrityError(
                f"the image {digest} has no signatures that can be read: {error.problems[0].reason}",
                where=self.where,
                hint="ask its maker to sign it with cosign, or take out signed_by",
            ) from error
        signatures: list[ImageSignature] = []
        for one in found:
            path = self.cache.path(one.payload)
            payload = path.read_bytes() if path.is_file() else b""
            if cosign.signs(payload, digest):
                made_by = [key for key in keys.values() if cosign.holds(one.value, payload, [key])]
                signatures += [cosign.kept(one.value, payload, key) for key in made_by]
        if not signatures:
            raise IntegrityError(
                f"none of the {len(found)} signatures of {digest} is by {', '.join(self.image.signed_by)}",
                where=self.where,
                hint="do not use this image; or ask its maker for the key",
            )
        return signatures

    def _require_kept(self, locked: ImageArtifact) -> None:
        """Raise ConflictError where a lock does not carry the signature that the manifest asks for."""
        keys = self._keys()
        if keys and not signed.signers(locked, keys):
            raise ConflictError(
                f"the lock has no signature of {self.image.reference} by {', '.join(keys)}",
                where=self.where,
                hint="make a new lock",
            )

    def _keys(self) -> dict[str, cosign.PublicKey]:
        """Return the keys of `signed_by` by their files."""
        return {path: cosign.read_key(self._key(path), path) for path in self.image.signed_by}

    def _key(self, path: str) -> bytes:
        try:
            return (self.folder / path).read_bytes()
        except OSError as error:
            raise InputError(
                f"the key {path} cannot be read: {error.strerror}", where=self.where, hint="give the maker's cosign.pub"
            ) from error

    def _missing(self, locked: ImageArtifact) -> list[str]:
        """Return the parts that the cache lacks, as far as its manifests tell."""
        return [sha256 for sha256, size in _blobs(locked, self.cache).items() if not self.cache.has(sha256, size)]

    def _pull(self, locked: ImageArtifact) -> None:
        """Fetch manifests by their digest, then the layers that are missing."""
        if made := locked.metadata.made:
            self.cache.keep(made.encode())
        content = self._kept(locked.sha256)
        document = oci.read(content, self.where)
        for child in document.manifests:
            self._kept(child.sha256)
        for sha256 in [child.sha256 for child in document.manifests] or [locked.sha256]:
            self._pull_manifest(sha256)

    def _pull_manifest(self, sha256: str) -> None:
        """Fetch configuration and layers of one architecture."""
        source = f"{repository(self.image.source)}@sha256:{sha256}"
        document = oci.read(self._kept(sha256), self.where)
        if document.config and not self.cache.has(document.config.sha256, document.config.size):
            self._check(document.config.sha256, self._inspect(source, "--config"))
        if not all(self.cache.has(layer.sha256, layer.size) for layer in document.layers):
            self._copy(source, [PLAIN], [layer.sha256 for layer in document.layers])

    def _kept(self, sha256: str) -> bytes:
        """Return a manifest from the cache, fetched by its digest where it is not there."""
        path = self.cache.path(sha256)
        if not path.is_file():
            self._check(sha256, self._inspect(f"{repository(self.image.source)}@sha256:{sha256}"))
        return path.read_bytes()

    def _check(self, sha256: str, content: bytes) -> None:
        if self.cache.keep(content)[0] != sha256:
            raise IntegrityError(
                f"the registry gave something else for sha256:{sha256}", where=self.where, hint="try again"
            )

    def _copied(self) -> bytes:
        """Copy a local image into the cache with all its parts; return its manifest or index."""
        unchanged = ["--all", "--preserve-digests", PLAIN]
        root = self._copy(self.image.source, [] if self.image.source.startswith(CONVERTED) else unchanged, [])
        return self.cache.path(root).read_bytes()

    def _copy(self, source: str, options: Sequence[str], have: Sequence[str]) -> str:
        """Copy by skopeo what the cache lacks, and take it over even when the rest failed; return the root's hash."""
        work = self.cache.root / "skopeo"
        blobs = work / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        # an interrupted run left whole blobs, which skopeo takes as they are
        shutil.rmtree(work / "layout", ignore_errors=True)
        for sha256 in have:
            if self.cache.path(sha256).is_file() and not (blobs / sha256).exists():
                (blobs / sha256).hardlink_to(self.cache.path(sha256))
        try:
            layout = ["--dest-shared-blob-dir", str(work), source, f"oci:{work / 'layout'}:image"]
            self._skopeo(["copy", "--quiet", *options, *layout])
            (entry,) = json.loads((work / "layout/index.json").read_text())["manifests"]
        finally:
            for path in list(blobs.iterdir()):
                self.cache.accept(path, path.name, source)
            shutil.rmtree(work)
        return str(entry["digest"]).removeprefix("sha256:")

    def _inspect(self, source: str, *options: str) -> bytes:
        """Return a manifest, or with `--config` a configuration, exactly as the registry has it."""
        return self._skopeo(["inspect", "--raw", *options, source])

    def _skopeo(self, words: Sequence[str]) -> bytes:
        skopeo = process.require("skopeo", "skopeo")
        try:
            return b"".join(process.stream([skopeo, "--insecure-policy", *words], cwd=self.folder))
        except ProcessError as error:
            raise UnavailableError(
                f"{self.image.source} cannot be read: {error.problems[0].reason}", where=self.where, hint=HINT
            ) from error

    def _chosen(self, index: oci.OciDocument) -> list[oci.Descriptor]:
        """Return the entries of an index that go into the bundle."""
        if not self.image.architectures:
            return index.manifests
        found = {
            entry.platform.architecture: entry
            for entry in reversed(index.manifests)
            if entry.platform and entry.platform.os == "linux"
        }
        self._require(found)
        return [found[arch] for arch in self.image.architectures]

    def _require(self, architectures: Sequence[str] | dict[str, oci.Descriptor]) -> None:
        absent = [arch for arch in self.image.architectures if arch not in architectures]
        if absent:
            raise InputError(
                f"{self.image.source} has no {', '.join(absent)}",
                where=self.where,
                hint=f"choose from: {', '.join(sorted(architectures))}",
            )

    def _described(
        self, content: bytes, document: oci.OciDocument, targets: Sequence[str], more: Mapping[str, object]
    ) -> ImageArtifact:
        """Describe the image itself; `more` is what its metadata say beside what every image has."""
        if document.config:
            config = self.cache.path(document.config.sha256)
            if not config.is_file():
                source = f"{repository(self.image.source)}@{oci.digest(content)}"
                self._check(document.config.sha256, self._inspect(source, "--config"))
            architectures = [str(json.loads(config.read_bytes()).get("architecture", "unknown"))]
        else:
            platforms = [entry.platform for entry in document.manifests if entry.platform]
            architectures = sorted({p.architecture for p in platforms if p.os == "linux"})
        self._require(architectures)
        sha256, size = self.cache.keep(content)
        words = {
            "tag": self.image.tag,
            "digest": f"sha256:{sha256}",
            "session": self.image.session,
            "media_type": document.kind,
            "architectures": architectures,
        }
        return ImageArtifact(
            name=self.image.name,
            version=self.image.tag,
            filename=oci.filename(self.image.reference),
            sha256=sha256,
            size=size,
            origin=self.image.source,
            targets=list(targets),
            metadata=ImageMetadata.model_validate(words | dict(more)),
        )


def _blobs(locked: ImageArtifact, cache: Cache) -> dict[str, int]:
    """Return the size of each blob of an image by its hash, as far as the cache's manifests tell."""
    found = {locked.sha256: locked.size}
    waiting = [locked.sha256]
    while waiting:
        path = cache.path(waiting.pop())
        if not path.is_file():
            continue
        document = oci.read(path.read_bytes(), locked.filename)
        found |= {part.sha256: part.size for part in document.parts}
        waiting += [part.sha256 for part in document.manifests]
    return found


def repository(source: str) -> str:
    """Return an address in a registry without its tag or digest."""
    address = source.partition("@")[0]
    folder, slash, name = address.rpartition("/")
    return folder + slash + name.partition(":")[0]
