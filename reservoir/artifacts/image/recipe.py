"""Images from a bundle's own parts: debootstrap against a local repository, apt for the rest, a layer for each step."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import files, process
from common.errors import InputError, ProcessError, UnavailableError
from common.progress import Progress
from reservoir import settings
from reservoir.artifacts.debian import publish as apt_tree
from reservoir.artifacts.image import oci
from reservoir.artifacts.image import root as roots
from reservoir.artifacts.image.layer import changes, pack, snapshot, unpack
from reservoir.artifacts.image.oci import Layer
from reservoir.contents.artifact import Artifact, DebianArtifact, ImageArtifact, ImageMetadata, ImagePart, of_kind
from reservoir.contents.lock import LockedImage
from reservoir.download.cache import WORK, Cache, link_or_copy, space_on
from reservoir.manifest.model import MACHINES, Image, Target, Units
from reservoir.manifest.releases import RELEASES
from reservoir.signing import openpgp

# counts up when this module makes something else of the same parts
RECIPE_VERSION = 4
CREATED = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH = int(CREATED.timestamp())
MOUNT = "run/penstock-packages"
ORIGIN = "built from this bundle's packages"
WHEELS = "run/penstock-wheels"
VENV = "/opt/venv"
SYSTEM_PACKAGES = "--system-site-packages"
"""Without it `pip install --user` is refused in the environment."""
# arguments: the folder on this machine, the root, where the folder lies in it
PREPARE = """set -e
mount --bind "$1" "$2/$3"
mount -t proc proc "$2/proc"
mount -t tmpfs tmpfs "$2/dev"
for device in null zero random urandom full tty; do
  touch "$2/dev/$device"; mount --bind "/dev/$device" "$2/dev/$device"
done
ln -s /proc/self/fd "$2/dev/fd"
root="$2"; shift 3
"""
# further arguments: the packages
INSTALL = f"""{PREPARE}
options="-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none"
chroot "$root" apt-get $options update
chroot "$root" apt-get $options install --yes "$@"
"""
INSTALL_PYTHON = f"""{PREPARE}
pip="chroot $root {VENV}/bin/python -m pip --isolated --no-cache-dir --disable-pip-version-check"
chroot "$root" /usr/bin/python3 -m venv {SYSTEM_PACKAGES} {VENV}
$pip install --no-index --no-deps --require-hashes --find-links /{WHEELS} --requirement /{WHEELS}/requirements.txt
$pip check
"""
DPKG = "/etc/dpkg/dpkg.cfg.d/penstock-build"
# a root that a power cut ends is thrown away: nothing has to reach the disk file by file
NO_WAITING = "force-unsafe-io\n"
NO_DOCUMENTATION = "".join(
    f"path-{rule}\n"
    for rule in (
        "exclude=/usr/share/doc/*",
        "include=/usr/share/doc/*/copyright",
        "exclude=/usr/share/man/*",
        "exclude=/usr/share/info/*",
        "exclude=/usr/share/lintian/*",
        "exclude=/usr/share/locale/*",
    )
)
# what differs from build to build, belongs to one machine, or only fills the disk
CLEANED = [
    "etc/.pwd.lock", "etc/apt/sources.list", "etc/group-", "etc/gshadow-", "etc/hostname", "etc/mtab", "etc/passwd-",
    "etc/resolv.conf", "etc/shadow-", "etc/ssh/ssh_host_*", "etc/subgid-", "etc/subuid-", "root/.bash_history",
    "root/.wget-hsts", "run/*", "tmp/*", "usr/share/doc/*/[!c]*", "usr/share/locale/*", "usr/share/man/*",
    "var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/cache/debconf/*-old", "var/cache/ldconfig/aux-cache",
    "var/lib/apt/lists/*", "var/lib/dbus/machine-id", "var/lib/dpkg/*-old", "var/lib/systemd/catalog/database",
    "var/log/*", "var/tmp/*",
]  # fmt: skip


@dataclass(frozen=True)
class Made:
    """An image whose blobs lie in the cache: its artifact, and those of its parts."""

    image: ImageArtifact
    parts: list[ImagePart]


@dataclass(frozen=True)
class Builder:
    """Builds one image of a target from `parts`, whose files lie in the cache; `known` describes them by hash."""

    recipe: Image
    target: Target
    parts: LockedImage
    known: Mapping[str, Artifact]
    cache: Cache
    progress: Progress

    def make(self) -> Made:
        """Return the image; layers that the cache holds of the same parts are taken from there.

        Needs root and debootstrap; raises UnavailableError that says so.
        """
        stages = self._stages()
        keys = [_key([stage.parts for stage in stages[: count + 1]]) for count in range(len(stages))]
        layers = self._kept(keys)
        if len(layers) < len(stages):
            if MACHINES[self.target.arch] != platform.machine():
                raise UnavailableError(
                    f"an image of {self.target.arch} cannot be built on this machine",
                    where=self.recipe.reference,
                    hint=f"run the build on a machine of {self.target.arch}",
                )
            process.require("debootstrap", "debootstrap")
            if os.geteuid() != 0:
                raise UnavailableError(
                    "building an image needs root", where=self.recipe.reference, hint="run the build as root"
                )
            folder = tempfile.TemporaryDirectory(prefix=WORK, dir=self.cache.root)
            with space_on(self.cache.root), folder as work:
                layers += self._build(Path(work), stages, keys, layers)
        return self._described(layers, [stage.name for stage in stages])

    def _stages(self) -> list[_Stage]:
        """Return the steps of the build; images whose first steps have the same parts share those layers."""
        target = [RECIPE_VERSION, self.target.release, self.target.arch]
        stages = [_Stage("base system", [*target, self.parts.base], self._base)]
        if self.recipe.packages:
            packages = [sorted(self.recipe.packages), self.parts.packages]
            stages.append(_Stage("packages", packages, self._install))
        if self.parts.python:
            parts = [SYSTEM_PACKAGES, sorted(self.parts.python)]
            stages.append(_Stage("Python packages", parts, self._install_python))
        if self.recipe.files or self.recipe.remove or self.recipe.units != Units():
            own = self.recipe.model_dump(include={"files", "units", "remove"})
            stages.append(_Stage("files", [own], lambda root, _: finish(root, self.recipe)))
        return stages

    def _kept(self, keys: list[str]) -> list[Layer]:
        """Return the layers that the cache has, up to the first that it lacks."""
        kept: list[Layer] = []
        for key in keys:
            record = self._record(key)
            if not record.is_file():
                break
            layer = Layer(**json.loads(record.read_text()))
            if not self.cache.has(layer.sha256, layer.size):
                break
            kept.append(layer)
        return kept

    def _record(self, key: str) -> Path:
        return self.cache.root / "layers" / f"{key}.json"

    def _build(self, work: Path, stages: list[_Stage], keys: list[str], below: list[Layer]) -> list[Layer]:
        """Run the stages above the layers that are there already; return the new layers."""
        root, made = work / "root", []
        for layer in below:
            unpack(self.cache.path(layer.sha256), root)
        root.mkdir(exist_ok=True)
        before = snapshot(root, EPOCH)
        for stage, key in zip(stages[len(below) :], keys[len(below) :], strict=True):
            self.progress(f"image {self.recipe.reference}: {stage.name}")
            stage.act(root, work)
            _clean(root)
            after = snapshot(root, EPOCH)
            path = work / f"{key}.layer"
            layer = pack(root, *changes(before, after), path, EPOCH)
            self.cache.add(path)
            self._record(key).parent.mkdir(exist_ok=True)
            files.write(self._record(key), json.dumps(asdict(layer)))
            made.append(layer)
            before = after
        return made

    def _described(self, layers: list[Layer], steps: list[str]) -> Made:
        """Write configuration and manifest into the cache and describe the image."""
        created = CREATED.strftime("%Y-%m-%dT%H:%M:%SZ")
        configuration = oci.config(
            layers, arch=self.target.arch, created=created, start=_start(self.recipe), steps=steps
        )
        manifest = oci.manifest(configuration, layers)
        sha256, size = self.cache.keep(manifest)
        self.cache.keep(configuration)
        image = ImageArtifact(
            name=self.recipe.name,
            version=self.recipe.tag,
            filename=oci.filename(self.recipe.reference),
            sha256=sha256,
            size=size,
            origin=ORIGIN,
            targets=[self.target.name],
            metadata=ImageMetadata(
                tag=self.recipe.tag,
                digest=f"sha256:{sha256}",
                session=self.recipe.session,
                media_type=oci.MANIFEST,
                architectures=[self.target.arch],
            ),
        )
        return Made(image, oci.artifacts(image, {sha256: manifest}))

    def _tree(self, work: Path) -> Path:
        """Return the Debian repository of the image's packages, made at the first call."""
        tree = work / "packages"
        if not tree.exists():
            key = openpgp.new_key()
            (work / "keyring.gpg").write_bytes(openpgp.binary_key(key))
            (work / "keyring.asc").write_bytes(openpgp.public_key(key))
            parts = dict.fromkeys([*self.parts.base, *self.parts.packages])
            wanted = of_kind((self.known[sha256] for sha256 in parts), DebianArtifact)
            release, arch = self.target.release, self.target.arch
            apt_tree.write(tree, {arch: wanted}, release=release, secret=key, place=self._place)
        return tree

    def _place(self, sha256: str, destination: Path) -> None:
        destination.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(self.cache.path(sha256), destination)

    def _base(self, root: Path, work: Path) -> None:
        """Make the smallest root file system."""
        tree = self._tree(work)
        command = ["--variant=minbase", f"--arch={self.target.arch}", f"--keyring={work / 'keyring.gpg'}"]
        debootstrap = [process.require("debootstrap", "debootstrap"), "--force-check-gpg", *command]
        roots.change(root, [roots.write(DPKG, NO_WAITING)])
        words: list[str | Path] = [*debootstrap, self.target.release, root, tree.as_uri()]
        if script := RELEASES[self.target.release].script:
            # its names for releases are links to few programs, and it may be older than a release
            words.append(f"/usr/share/debootstrap/scripts/{script}")
        process.run([*roots.ISOLATED, *words], env=_environment())
        roots.change(root, [roots.remove(DPKG)])

    def _install(self, root: Path, work: Path) -> None:
        """Install packages in the root by its own apt, from the local repository and nothing else."""
        tree = self._tree(work)
        source = f"deb [signed-by=/etc/apt/penstock-build.asc] file:/{MOUNT} {self.target.release} main\n"
        helpers = [
            roots.write(DPKG, NO_DOCUMENTATION + NO_WAITING),
            roots.write("/etc/apt/penstock-build.asc", (work / "keyring.asc").read_text()),
            roots.write("/etc/apt/sources.list.d/penstock-build.list", source),
            # packages must not start their services while they are installed
            roots.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755),
        ]
        roots.change(root, helpers)
        _run(INSTALL, tree, root, MOUNT, *sorted(self.recipe.packages))
        roots.change(root, [roots.remove(str(helper["path"])) for helper in helpers])

    def _install_python(self, root: Path, work: Path) -> None:
        """Make the image's Python environment by its own venv and pip, from the locked wheels and nothing else."""
        place = work / "wheels"
        wanted = [self.known[sha256] for sha256 in self.parts.python]
        for wheel in wanted:
            self._place(wheel.sha256, place / wheel.filename)
        lines = sorted(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wanted)
        (place / "requirements.txt").write_text("".join(lines))
        _run(INSTALL_PYTHON, place, root, WHEELS)


@dataclass(frozen=True)
class _Stage:
    """One step of a build: `parts` are all that it depends on, `act` changes the root, given a folder to work in."""

    name: str
    parts: list[Any]
    act: Callable[[Path, Path], None]


def _key(parts: object) -> str:
    """Return a hash of all that goes into a layer and those below it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _run(script: str, folder: Path, root: Path, place: str, *words: str) -> None:
    """Run a script for the root with no network; a folder of this machine lies at `place` in it meanwhile."""
    roots.change(root, [roots.make(place)])
    process.run([*roots.ISOLATED, "/bin/sh", "-c", script, "sh", folder, root, place, *words], env=_environment())


def _environment() -> dict[str, str]:
    """Return the environment for programs that write into a root file system."""
    return settings.environment(
        DEBIAN_FRONTEND="noninteractive",
        LC_ALL="C.UTF-8",
        # compiled Python files hold hashes instead of times, and sets in one order
        SOURCE_DATE_EPOCH=str(EPOCH),
        PYTHONHASHSEED="0",
        PYTHONDONTWRITEBYTECODE=None,
        TMPDIR=None,
    )


def finish(root: Path, recipe: Image) -> None:
    """Write the recipe's files, set its units, and take away what it names; needs root.

    Raises InputError where a file has no place in the root.
    """
    try:
        roots.change(root, [roots.write(file.path, file.content, int(file.mode, 8)) for file in recipe.files])
    except ProcessError as error:
        raise InputError(
            error.problems[0].reason.rpartition("OSError: ")[2],
            where=f"{recipe.reference}: files",
            hint="give a path that no file is in the way of, and no link that leads in a circle",
        ) from error
    for action, units in (("enable", recipe.units.enable), ("mask", recipe.units.mask)):
        if units:
            process.run([*roots.ISOLATED, "chroot", root, "systemctl", action, *units], env=_environment())
    roots.change(root, map(roots.remove, recipe.remove))


def _clean(root: Path) -> None:
    """Take away what must not be in an image; systemd makes an identity of its own at the first boot of a machine."""
    roots.change(root, [*map(roots.clean, CLEANED), roots.empty("/etc/machine-id")])


def _start(recipe: Image) -> dict[str, object]:
    """Return how containers of the image start."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": f"{VENV}/bin:{path}", "VIRTUAL_ENV": VENV} if recipe.python else {"PATH": path}
    environment |= recipe.environment
    config: dict[str, object] = {
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Cmd": recipe.command,
    }
    if recipe.entrypoint:
        config["Entrypoint"] = recipe.entrypoint
    if recipe.stop_signal:
        config["StopSignal"] = recipe.stop_signal
    return config
