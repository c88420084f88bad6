"""Images from Debian packages alone: debootstrap against a local repository, apt for the rest, then one archive."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from reservoir import apt_tree, archive, process, settings
from reservoir.bundle import link_or_copy
from reservoir.cache import Cache, room_on
from reservoir.errors import UnavailableError
from reservoir.manifest import Image, Target
from reservoir.model import Artifact, LockedImage
from reservoir.progress import Progress

# counts up when this module makes something else of the same parts
RECIPE_VERSION = 1
CREATED = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH = int(CREATED.timestamp())
MOUNT = "run/penstock-packages"
UNPACK = ["--numeric-owner", "--same-permissions", "--same-owner", "--xattrs", "--xattrs-include=*"]
# arguments: the repository, the root, the packages
INSTALL = f"""set -e
mount --bind "$1" "$2/{MOUNT}"
mount -t proc proc "$2/proc"
mount -t tmpfs tmpfs "$2/dev"
for device in null zero random urandom full tty; do
  touch "$2/dev/$device"; mount --bind "/dev/$device" "$2/dev/$device"
done
ln -s /proc/self/fd "$2/dev/fd"
root="$2"; shift 2
options="-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none"
chroot "$root" apt-get $options update
chroot "$root" apt-get $options install --yes "$@"
"""
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
    """An image archive in the cache; `digest` is the one that registries know the image by."""

    sha256: str
    size: int
    digest: str


@dataclass(frozen=True)
class Builder:
    """Builds one image of a target from `parts`, whose files lie in the cache; `debs` describes them by hash."""

    recipe: Image
    target: Target
    parts: LockedImage
    debs: Mapping[str, Artifact]
    cache: Cache
    progress: Progress

    def make(self) -> Made:
        """Return the image's archive, built where the cache does not hold one of the same parts.

        Needs root and debootstrap; raises UnavailableError that says so.
        """
        done = self.cache.root / "images" / f"{self._fingerprint()}.json"
        if done.is_file():
            made = Made(**json.loads(done.read_text()))
            if self.cache.has(made.sha256, made.size):
                return made
        process.require("debootstrap", "debootstrap")
        if os.geteuid() != 0:
            raise UnavailableError("building an image needs root", where=self._reference, cure="run the build as root")
        done.parent.mkdir(parents=True, exist_ok=True)
        with room_on(self.cache.root), tempfile.TemporaryDirectory(prefix="image-", dir=self.cache.root) as folder:
            made = self._build(Path(folder))
        done.write_text(json.dumps(asdict(made)))
        return made

    @property
    def _reference(self) -> str:
        return f"{self.recipe.name}:{self.recipe.tag}"

    def _fingerprint(self) -> str:
        """Return a hash of all that goes into the image."""
        target = [self.target.release, self.target.arch]
        content = [RECIPE_VERSION, self.recipe.model_dump(), target, self.parts.model_dump()]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _build(self, work: Path) -> Made:
        """Build the root file system, finish it as the recipe says and pack it."""
        root, tree = work / "root", work / "packages"
        key = apt_tree.new_key()
        wanted = [self.debs[sha256] for sha256 in dict.fromkeys([*self.parts.base, *self.parts.packages])]
        release, arch = self.target.release, self.target.arch
        apt_tree.write(tree, wanted, release=release, arch=arch, created=CREATED, secret=key, place=self._place)
        self.progress(f"image {self._reference}: base system")
        self._base(root, tree, apt_tree.binary_key(key))
        if self.recipe.packages:
            self.progress(f"image {self._reference}: packages")
            self._install(root, tree, apt_tree.public_key(key))
        _finish(root, self.recipe)
        self.progress(f"image {self._reference}: pack")
        layer = archive.pack(root, work / "layer.tar.gz", EPOCH)
        path = work / self.recipe.archive
        created = CREATED.strftime("%Y-%m-%dT%H:%M:%SZ")
        config = _config(self.recipe)
        digest = archive.write(path, layer, reference=self._reference, arch=arch, config=config, created=created)
        sha256, size = self.cache.add(path)
        return Made(sha256, size, digest)

    def _place(self, sha256: str, destination: Path) -> None:
        destination.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(self.cache.path(sha256), destination)

    def _base(self, root: Path, tree: Path, keyring: bytes) -> None:
        """Make the smallest root file system, or unpack the one that an earlier image made of the same packages."""
        parts = [RECIPE_VERSION, self.target.release, self.target.arch, *self.parts.base]
        kept = self.cache.root / "roots" / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}.tar"
        if not kept.is_file():
            path = tree.parent / "keyring.gpg"
            path.write_bytes(keyring)
            command = ["--variant=minbase", f"--arch={self.target.arch}", f"--keyring={path}", "--force-check-gpg"]
            debootstrap = process.require("debootstrap", "debootstrap")
            process.run([debootstrap, *command, self.target.release, root, tree.as_uri()], env=_environment())
            kept.parent.mkdir(exist_ok=True)
            beside = kept.with_suffix(".partial")
            with beside.open("wb") as file:
                file.writelines(archive.tar_stream(root, EPOCH))
            beside.replace(kept)
        else:
            root.mkdir()
            process.run(["tar", "--extract", f"--file={kept}", f"--directory={root}", *UNPACK])

    def _install(self, root: Path, tree: Path, key: bytes) -> None:
        """Install packages in the root by its own apt, from the local repository and nothing else."""
        helpers = {
            "etc/dpkg/dpkg.cfg.d/penstock-build": NO_DOCUMENTATION,
            "etc/apt/penstock-build.asc": key.decode(),
            "etc/apt/sources.list.d/penstock-build.list": "deb [signed-by=/etc/apt/penstock-build.asc] "
            f"file:/{MOUNT} {self.target.release} main\n",
            # packages must not start their services while they are installed
            "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
        }
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        for name, content in helpers.items():
            (root / name).write_text(content)
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        (root / MOUNT).mkdir(parents=True)
        # in name spaces of its own: the mounts and whatever a package starts go away with it, even when it is killed
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
        command = [*isolated, "/bin/sh", "-c", INSTALL, "sh", str(tree), str(root), *self.recipe.packages]
        process.run(command, env=_environment())
        for name in helpers:
            (root / name).unlink()


def _environment() -> dict[str, str]:
    """Return the environment for programs that write into a root file system."""
    return settings.environment(
        DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8", SOURCE_DATE_EPOCH=str(EPOCH), TMPDIR=None
    )


def _finish(root: Path, recipe: Image) -> None:
    """Write the recipe's files, set its units, and take away what must not be in an image."""
    for file in recipe.files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)
        path.chmod(int(file.mode, 8))
    for action, units in (("enable", recipe.units.enable), ("mask", recipe.units.mask)):
        if units:
            process.run(["chroot", root, "systemctl", action, *units])
    for pattern in CLEANED:
        for path in root.glob(pattern):
            _remove(path)
    for name in recipe.remove:
        _remove(root / name.lstrip("/"))
    # systemd makes an identity of its own at the first boot of each machine
    if (root / "etc/machine-id").exists():
        (root / "etc/machine-id").write_text("")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _config(recipe: Image) -> dict[str, object]:
    """Return how containers of the image start."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | recipe.environment
    config: dict[str, object] = {
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Cmd": recipe.command,
    }
    if recipe.stop_signal:
        config["StopSignal"] = recipe.stop_signal
    return config
