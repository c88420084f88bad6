"""Images from real sources, through a bundle and a site, into a real registry: nothing on the way changes a digest."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservoir.artifacts.image import archive, cosign, oci
from reservoir.artifacts.image.signed import signers
from reservoir.contents.artifact import ImageArtifact
from tests.integration.reservoir import registry as registries
from tests.integration.reservoir.conftest import docker, penstock
from tests.integration.reservoir.registry import Registry

BOTH = ("amd64", "arm64")
# waits until the server answers where it was told to, and prints what it says
JUPYTER = """
import time, urllib.request
for _ in range(300):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8888/notes/api").read().decode())
        break
    except OSError:
        time.sleep(0.2)
"""
USER = "import site; print(site.ENABLE_USER_SITE)"


@pytest.fixture(scope="module")
def program(product_bundle: Path, listed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The registry's program, out of the product's bundle: nothing is installed on this machine."""
    deb = next(a["sha256"] for a in listed["artifacts"] if a["name"] == "docker-registry")
    folder = tmp_path_factory.mktemp("program")
    subprocess.run(["dpkg-deb", "--extract", product_bundle / "blobs/sha256" / deb, folder], check=True)
    return folder / "usr/bin/docker-registry"


@pytest.fixture(scope="module")
def upstream(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry of the outside world: a certificate of its own authority, a password."""
    found = registries.start(program, tmp_path_factory.mktemp("upstream"), password=True)
    yield found
    found.process.terminate()
    found.process.wait()


@pytest.fixture(scope="module")
def own(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The site's registry."""
    found = registries.start(program, tmp_path_factory.mktemp("own"), password=False)
    yield found
    found.process.terminate()
    found.process.wait()


@pytest.fixture(scope="module")
def machine(upstream: Registry, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the machine of the build knows of the registry: its authority and its password, in skopeo's own files."""
    home = tmp_path_factory.mktemp("home")
    places = home / ".config/containers/certs.d" / upstream.address
    places.mkdir(parents=True)
    shutil.copyfile(upstream.ca, places / "ca.crt")
    password = base64.b64encode(b"puller:secret").decode()
    (home / "auth.json").write_text(json.dumps({"auths": {upstream.address: {"auth": password}}}))
    return {"HOME": str(home), "REGISTRY_AUTH_FILE": str(home / "auth.json")}


class Workshop:
    """A folder with a manifest of external images, and a cache and a signing key of its own."""

    def __init__(self, folder: Path, machine: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {
            **machine,
            "PENSTOCK_CACHE": str(folder / "cache"),
            "PENSTOCK_SIGNING_KEY": str(folder / "key"),
        }

    def want(self, **images: Mapping[str, Any]) -> None:
        """Write a manifest of these images."""
        document = {
            "schema": 1,
            "name": "images",
            "version": "1",
            "targets": [{"name": "debian12", "release": "bookworm"}],
            "external_images": [{"name": f"ext/{name}", "tag": "1", **image} for name, image in images.items()],
        }
        (self.folder / "manifest.yml").write_text(yaml.safe_dump(document))

    def run(self, *words: str | Path, code: int = 0) -> str:
        done = penstock(*words, code=code, environment=self.environment)
        return done.stdout + done.stderr

    def lock(self, code: int = 0) -> str:
        return self.run("lock", self.folder / "manifest.yml", code=code)

    def build(self, code: int = 0) -> str:
        return self.run("build", self.folder / "manifest.yml", "--output", self.folder / "out", code=code)

    def forget(self) -> None:
        """Lose the cache, as a build on another machine has none."""
        shutil.rmtree(self.folder / "cache")

    @property
    def bundle(self) -> Path:
        return self.folder / "out/images-1"

    def images(self) -> dict[str, dict[str, Any]]:
        artifacts = json.loads((self.bundle / "bundle.json").read_text())["artifacts"]
        return {a["name"].removeprefix("ext/"): a for a in artifacts if a["kind"] == "image"}


@pytest.fixture
def workshop(tmp_path: Path, machine: Mapping[str, str]) -> Workshop:
    return Workshop(tmp_path, machine)


def upload(
    workshop: Workshop,
    upstream: Registry,
    name: str,
    text: str,
    architectures: tuple[str, ...] = BOTH,
    *,
    options: tuple[str, ...] = ("--preserve-digests",),
) -> str:
    """Put an image into the upstream registry under the tag 1; return its digest there."""
    folder = workshop.folder / f"layout-{text}"
    registries.layout(folder, text, architectures)
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", *options, f"oci:{folder}:image"]
    environment = os.environ | workshop.environment
    subprocess.run([*copy, f"docker://{upstream.address}/{name}:1"], check=True, env=environment)
    digest = upstream.digest(name, "1")
    assert digest
    return digest


def blob(workshop: Workshop, digest: str) -> Any:
    return json.loads((workshop.bundle / "blobs/sha256" / digest.removeprefix("sha256:")).read_text())


def test_images_of_a_registry_keep_their_digests(workshop: Workshop, upstream: Registry) -> None:
    digest = upload(workshop, upstream, "team/tool", "every")
    single = upload(workshop, upstream, "team/single", "single", ("amd64",))
    source = f"docker://{upstream.address}/team/tool:1"
    workshop.want(
        every={"source": source},
        one={"source": source, "architectures": ["arm64"]},
        single={"source": f"docker://{upstream.address}/team/single@{single}", "session": True},
    )
    workshop.lock()
    workshop.forget()
    workshop.build()
    found = workshop.images()
    assert found["every"]["metadata"]["digest"] == digest
    assert found["every"]["metadata"]["architectures"] == list(BOTH)
    children = {entry["platform"]["architecture"]: entry["digest"] for entry in blob(workshop, digest)["manifests"]}
    assert found["one"]["metadata"]["digest"] == children["arm64"], "one architecture is its own manifest"
    assert found["single"]["metadata"]["digest"] == single
    workshop.run("verify", workshop.bundle)
    everything = b"".join(path.read_bytes() for path in workshop.bundle.rglob("*") if path.is_file())
    everything += (workshop.folder / "reservoir.lock").read_bytes()
    assert b"secret" not in everything
    assert base64.b64encode(b"puller:secret") not in everything


def key_pair(folder: Path, name: str, *words: str) -> Path:
    """Make a key with OpenSSL, and its public half beside it as cosign.pub of a maker; return the private one."""
    private = folder / f"{name}.key"
    words = words or ("EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    subprocess.run(["openssl", "genpkey", "-algorithm", *words, "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", folder / f"{name}.pub"], check=True)
    return private


def sign(
    workshop: Workshop, upstream: Registry, name: str, digest: str, key: Path, *, payload: str | None = None
) -> None:
    """Sign an image as cosign does: OpenSSL's signature of its payload, in the registry, under the tag of the image.

    https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
    """
    critical = {
        "identity": {"docker-reference": f"{upstream.address}/{name}"},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    text = (payload or json.dumps({"critical": critical, "optional": None})).encode()
    folder = workshop.folder / f"signature-{uuid.uuid4()}"
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    (folder / "payload").write_bytes(text)
    files: list[str | Path] = ["-inkey", key, "-in", folder / "payload", "-out", folder / "made"]
    if (
        b"ED25519"
        not in subprocess.run(["openssl", "pkey", "-in", key, "-text"], check=True, capture_output=True).stdout
    ):
        files += ["-digest", "sha256"]
    subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", *files], check=True)
    value = base64.b64encode((folder / "made").read_bytes()).decode()

    def keep(content: bytes, kind: str, **more: object) -> dict[str, object]:
        (blobs / oci.digest(content).removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": kind, "digest": oci.digest(content), "size": len(content)} | more

    config = oci.encode({"architecture": "", "os": "", "rootfs": {"type": "layers", "diff_ids": [oci.digest(text)]}})
    layer = keep(
        text,
        "application/vnd.dev.cosign.simplesigning.v1+json",
        annotations={"dev.cosignproject.cosign/signature": value},
    )
    document = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": keep(config, oci.CONFIG), "layers": [layer]}
    annotations = {"org.opencontainers.image.ref.name": "signature"}
    entry = keep(oci.encode(document), oci.MANIFEST, annotations=annotations)
    (folder / "index.json").write_bytes(oci.encode({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_bytes(oci.encode({"imageLayoutVersion": "1.0.0"}))
    there = f"docker://{upstream.address}/{name}:{digest.replace(':', '-')}.sig"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests", f"oci:{folder}:signature", there]
    subprocess.run(copy, check=True, env=os.environ | workshop.environment)


@pytest.mark.parametrize("kind", [(), ("RSA",), ("ED25519",)])
def test_an_image_that_its_maker_signed_is_taken(workshop: Workshop, upstream: Registry, kind: tuple[str, ...]) -> None:
    name = f"team/signed{len(kind)}{''.join(kind).lower()}"
    digest = upload(workshop, upstream, name, "signed")
    sign(workshop, upstream, name, digest, key_pair(workshop.folder, "maker", *kind))
    key_pair(workshop.folder, "other")
    source = f"docker://{upstream.address}/{name}:1"
    workshop.want(tool={"source": source, "architectures": ["arm64"], "signed_by": ["other.pub", "maker.pub"]})
    workshop.lock()
    workshop.build()
    found = ImageArtifact.model_validate(workshop.images()["tool"])
    assert found.metadata.architectures == ["arm64"]
    # what the bundle carries is enough to check it again, though the index was signed and one architecture taken
    keys = {one: cosign.read_key((workshop.folder / f"{one}.pub").read_bytes(), one) for one in ("other", "maker")}
    assert signers(found, keys) == ["maker"]
    (workshop.folder / "maker.pub").unlink()
    key_pair(workshop.folder, "maker", *kind)
    assert "the lock has no signature of ext/tool:1 by other.pub, maker.pub" in workshop.build(code=7)


def test_an_image_that_nobody_answers_for_is_refused(workshop: Workshop, upstream: Registry) -> None:
    digest = upload(workshop, upstream, "team/doubt", "doubt", ("amd64",))
    maker, other = (key_pair(workshop.folder, name) for name in ("maker", "other"))
    source = f"docker://{upstream.address}/team/doubt:1"
    workshop.want(tool={"source": source, "signed_by": ["maker.pub"]})
    assert f"the image {digest} has no signatures" in workshop.lock(code=3)
    sign(workshop, upstream, "team/doubt", digest, other)
    assert f"none of the 1 signatures of {digest} is by maker.pub" in workshop.lock(code=3)
    # a signature of another image, or one that says something else than that, moved here
    elsewhere = json.dumps({"critical": {"image": {"docker-manifest-digest": "sha256:" + "0" * 64}, "type": "any"}})
    sign(workshop, upstream, "team/doubt", digest, maker, payload=elsewhere)
    assert "none of the 1 signatures" in workshop.lock(code=3)
    kept = json.dumps({"critical": {"image": {"docker-manifest-digest": digest}, "type": "atomic container signature"}})
    sign(workshop, upstream, "team/doubt", digest, maker, payload=kept)
    assert "none of the 1 signatures" in workshop.lock(code=3)
    sign(workshop, upstream, "team/doubt", digest, maker)
    workshop.lock()
    workshop.want(tool={"source": source, "signed_by": ["absent.pub"]})
    assert "the key absent.pub cannot be read" in workshop.lock(code=2)
    (workshop.folder / "absent.pub").write_text("no key")
    assert "not a public key of cosign" in workshop.lock(code=2)


def test_several_of_more_architectures_are_an_index_of_their_own(workshop: Workshop, upstream: Registry) -> None:
    digest = upload(workshop, upstream, "team/many", "many", (*BOTH, "s390x"))
    workshop.want(some={"source": f"docker://{upstream.address}/team/many:1", "architectures": list(BOTH)})
    workshop.lock()
    workshop.forget()
    workshop.build()
    found = workshop.images()["some"]["metadata"]
    assert found["digest"] != digest
    assert found["architectures"] == list(BOTH)
    kept = [entry["platform"]["architecture"] for entry in blob(workshop, found["digest"])["manifests"]]
    assert kept == list(BOTH)


def test_the_lock_decides_when_a_tag_moves_and_says_when_an_image_is_gone(
    workshop: Workshop, upstream: Registry
) -> None:
    first = upload(workshop, upstream, "team/moving", "first")
    workshop.want(moving={"source": f"docker://{upstream.address}/team/moving:1"})
    workshop.lock()
    upload(workshop, upstream, "team/moving", "second")
    workshop.forget()
    workshop.build()
    assert workshop.images()["moving"]["metadata"]["digest"] == first
    upstream.delete("team/moving", first)
    workshop.forget()
    shutil.rmtree(workshop.bundle)
    said = workshop.build(code=5)
    assert "external_images[0]" in said
    assert "manifest unknown" in said
    assert "lock another one" in said
    assert not workshop.bundle.exists()


def test_archives_layouts_and_the_engine(workshop: Workshop) -> None:
    folder, reference = workshop.folder, f"penstock-test-{os.getpid()}/small:1"
    digest = registries.layout(folder / "layout", "local", BOTH)
    archive = f"oci-archive:{folder / 'archive.tar'}:image"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", f"oci:{folder / 'layout'}:image", archive]
    subprocess.run(copy, check=True)
    docker("import", "--change", 'CMD ["/text"]', _root(folder), reference)
    try:
        docker("save", "--output", folder / "saved.tar", reference)
        workshop.want(
            layout={"source": "oci:layout:image"},
            archive={"source": "oci-archive:archive.tar:image"},
            saved={"source": "docker-archive:saved.tar"},
            engine={"source": f"docker-daemon:{reference}"},
        )
        workshop.lock()
        workshop.forget()
        workshop.build()
    finally:
        docker("rmi", reference)
    found = {name: image["metadata"]["digest"] for name, image in workshop.images().items()}
    assert found["layout"] == found["archive"] == digest
    assert found["saved"] == found["engine"], "the first conversion decides, and another gives the same"
    assert blob(workshop, found["saved"])["layers"][0]["mediaType"].endswith("tar+gzip")
    registries.layout(folder / "other", "another", BOTH)
    shutil.rmtree(folder / "layout")
    (folder / "other").rename(folder / "layout")
    workshop.forget()
    assert "is another image now" in workshop.build(code=7)


def test_what_cannot_be_read_is_told_with_its_place_in_the_manifest(workshop: Workshop, upstream: Registry) -> None:
    workshop.want(none={"source": f"docker://{upstream.address}/team/none:1"})
    assert "external_images[0]" in workshop.lock(code=5)
    upload(workshop, upstream, "team/amd", "amd", ("amd64",))
    workshop.want(wrong={"source": f"docker://{upstream.address}/team/amd:1", "architectures": ["arm64"]})
    said = workshop.lock(code=2)
    assert "has no arm64" in said
    assert "choose from: amd64" in said
    assert not (workshop.folder / "reservoir.lock").exists()


def test_another_registry_gets_what_it_lacks_and_nothing_else(
    workshop: Workshop, upstream: Registry, own: Registry
) -> None:
    digest = upload(workshop, upstream, "team/site", "site")
    older = upload(workshop, upstream, "team/docker", "docker", options=("--format", "v2s2"))
    saved = registries.layout(workshop.folder / "single", "alone", ("amd64",))
    workshop.want(
        site={"source": f"docker://{upstream.address}/team/site:1"},
        docker={"source": f"docker://{upstream.address}/team/docker:1"},
        alone={"source": "oci:single:image"},
    )
    workshop.lock()
    workshop.build()
    root = workshop.folder / "site"
    workshop.run("import", "--trust-first", workshop.bundle, "--root", root)
    publish = ("publish", "--root", root, "--registry", own.address, "--ca", own.ca, "--json")
    assert json.loads(penstock(*publish).stdout)["pushed"] == ["ext/alone:1", "ext/docker:1", "ext/site:1"]
    assert own.digest("ext/site", "1") == digest
    assert own.digest("ext/docker", "1") == older, "manifests of Docker's own kind stay what they are"
    assert workshop.images()["docker"]["metadata"]["media_type"] == oci.DOCKER_LIST
    assert own.digest("ext/alone", "1") == saved
    for name, index in (("ext/site", digest), ("ext/docker", older)):
        for entry in blob(workshop, index)["manifests"]:
            assert own.digest(name, entry["digest"]), "every architecture is there"
    assert json.loads(penstock(*publish).stdout)["pushed"] == []
    own.delete("ext/alone", saved)
    assert json.loads(penstock(*publish).stdout)["pushed"] == ["ext/alone:1"]


def test_the_sites_registry_serves_what_is_published_and_takes_nothing(
    workshop: Workshop, upstream: Registry, program: Path
) -> None:
    """As the role configures it: with every architecture and kind of manifest, and a rollback rolls it back."""
    digests = [upload(workshop, upstream, "team/kept", "one"), upload(workshop, upstream, "team/kept", "two")]
    older = upload(workshop, upstream, "team/older", "older", options=("--format", "v2s2"))
    root = workshop.folder / "site"
    for number, digest in enumerate(digests, 1):
        source = f"docker://{upstream.address}/team/kept@{digest}"
        workshop.want(kept={"source": source}, older={"source": f"docker://{upstream.address}/team/older:1"})
        manifest = workshop.folder / "manifest.yml"
        manifest.write_text(manifest.read_text().replace("version: '1'", f"version: '{number}'"))
        workshop.lock()
        workshop.build()
        workshop.run("import", "--trust-first", workshop.folder / f"out/images-{number}", "--root", root)
        workshop.run("publish", "--root", root)
    folder = workshop.folder / "registry"
    folder.mkdir()
    site = registries.start(program, folder, password=False, published=root / "current")
    try:
        assert (site.digest("ext/kept", "1"), site.digest("ext/older", "1")) == (digests[1], older)
        assert site.digest("ext/kept", digests[0]) is None
        workshop.run("rollback", "--root", root)
        assert site.digest("ext/kept", "1") == digests[0]
        tls = ["--src-cert-dir", str(folder)]
        copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", *tls, f"docker://{site.address}/ext/kept:1"]
        subprocess.run([*copy, f"oci:{workshop.folder / 'pulled'}:image"], check=True)
        (entry,) = json.loads((workshop.folder / "pulled/index.json").read_text())["manifests"]
        assert entry["digest"] == digests[0]
        push = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-cert-dir", str(folder)]
        source = f"oci:{workshop.folder / 'pulled'}:image"
        assert subprocess.run([*push, source, f"docker://{site.address}/ext/mine:1"], check=False).returncode
        assert site.digest("ext/mine", "1") is None
        assert not list((root / "current/images/registry").rglob("_uploads"))
    finally:
        site.process.terminate()
        site.process.wait()


@pytest.fixture(scope="module")
def session_images(
    product_bundle: Path, listed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The product's session images in the local engine, by what people call them."""
    prefix = f"penstock-test-{uuid.uuid4().hex[:8]}"
    path = tmp_path_factory.mktemp("session") / "image.tar"
    names = {}
    for image in (a for a in listed["artifacts"] if a["kind"] == "image" and a["metadata"]["session"]):
        title = f"{image['name'].removeprefix('penstock/')}:{image['version']}"
        archive.write(path, product_bundle / "blobs/sha256", image["sha256"], f"{prefix}/{title}")
        docker("load", "--input", path)
        names[title] = f"{prefix}/{title}"
    yield names
    docker("rmi", *names.values())


def inside(image: str, program: str, *arguments: str) -> str:
    """Run a command in a container of nobody in particular, without a network."""
    container = ["--rm", "--network", "none", "--user", "1234", "--env", "HOME=/tmp", "--entrypoint", program]
    return docker("run", *container, image, *arguments)


def test_versions_stand_side_by_side(session_images: dict[str, str]) -> None:
    version = "import platform; print(platform.python_version())"
    for tag in ("3.11", "3.13"):
        assert inside(session_images[f"python:{tag}"], "python3", "-c", version).startswith(tag)
    version = "import numpy; print(numpy.__version__, numpy.arange(3).sum())"
    for tag in ("1.26", "2.3"):
        assert re.fullmatch(rf"{tag}\.\d+ 3", inside(session_images[f"numpy:{tag}"], "python", "-c", version))


def test_jupyter_opens_a_notebook_where_it_is_told_to(session_images: dict[str, str]) -> None:
    assert inside(session_images["jupyter:4"], "jupyter", "lab", "--version").startswith("4.")
    container = ["--detach", "--network", "none", "--env", "HOME=/tmp", session_images["jupyter:4"]]
    started = docker("run", *container, "--ServerApp.base_url=notes").strip()
    try:
        assert json.loads(docker("exec", started, "python", "-c", JUPYTER))["version"]
        listens = docker("exec", started, "cat", "/proc/net/tcp").split()
        assert "00000000:22B8" in listens, "on every address, at 8888"
    finally:
        docker("rm", "--force", "--volumes", started)


@pytest.mark.parametrize("title", ["python:3.11", "python:3.13", "numpy:2.3", "jupyter:4"])
def test_pip_is_there_and_installs_for_the_user_too(session_images: dict[str, str], title: str) -> None:
    assert "/opt/venv/" in inside(session_images[title], "pip", "--version")
    assert inside(session_images[title], "python", "-c", USER).strip() == "True"


def test_images_share_their_lower_layers(product_bundle: Path, listed: dict[str, Any]) -> None:
    blobs = product_bundle / "blobs/sha256"
    images = {f"{a['name']}:{a['version']}": a["sha256"] for a in listed["artifacts"] if a["kind"] == "image"}
    layers = {
        name: [layer.sha256 for layer in oci.read((blobs / sha256).read_bytes(), name).layers]
        for name, sha256 in images.items()
    }
    python = layers["penstock/python:3.11"]
    for name in ("penstock/numpy:1.26", "penstock/numpy:2.3", "penstock/jupyter:4"):
        assert layers[name][:2] == python[:2], "Python and files alone differ"
    assert [len(layers[f"penstock/{name}"]) for name in ("python:3.11", "numpy:2.3", "jupyter:4")] == [3, 3, 4]
    assert layers["penstock/lab-node:12"][0] == python[0], "one base system for all images of a target"


def _root(folder: Path) -> Path:
    """Write a tar of a root file system with one file."""
    (folder / "root").mkdir()
    (folder / "root/text").write_text("from the engine")
    subprocess.run(
        ["tar", "--create", f"--file={folder / 'root.tar'}", f"--directory={folder / 'root'}", "."], check=True
    )
    return folder / "root.tar"
