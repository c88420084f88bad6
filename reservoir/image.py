"""Images from Debian packages alone: debootstrap against a local repository, apt for the rest, then one archive."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
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
MOUNT = "run/penstock-packages"
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


def make(
    recipe: Image, target: Target, parts: LockedImage, debs: Mapping[str, Artifact], cache: Cache, progress: Progress
) -> Made:
    """Return the archive of an image, built where the cache does not hold one of the same parts.

    Needs root and debootstrap; raises UnavailableError that says so.
    """
    done = cache.root / "images" / f"{_fingerprint(recipe, target, parts)}.json"
    if done.is_file():
        made = Made(**json.loads(done.read_text()))
        if cache.has(made.sha256, made.size):
            return made
    debootstrap = process.require("debootstrap", "debootstrap")
    if os.geteuid() != 0:
        raise UnavailableError(
            "building an image needs root", where=f"{recipe.name}:{recipe.tag}", cure="run the build as root"
        )
    done.parent.mkdir(parents=True, exist_ok=True)
    with room_on(cache.root), tempfile.TemporaryDirectory(prefix="image-", dir=cache.root) as folder:
        made = _build(recipe, target, parts, debs, cache, Path(folder), debootstrap, progress)
    done.write_text(json.dumps(asdict(made)))
    return made


def _build(
    recipe: Image,
    target: Target,
    parts: LockedImage,
    debs: Mapping[str, Artifact],
    cache: Cache,
    work: Path,
    debootstrap: str,
    progress: Progress,
) -> Made:
    """Build the root file system, finish it as the recipe says and pack it."""
    label = f"image {recipe.name}:{recipe.tag}"
    key = apt_tree.new_key()
    tree = work / "packages"
    wanted = [debs[sha256] for sha256 in dict.fromkeys([*parts.base, *parts.packages])]
    apt_tree.write(tree, target.release, target.arch, wanted, CREATED, key, lambda h, to: _place(cache.path(h), to))
    root = work / "root"
    progress(f"{label}: base system")
    _base(root, target, parts, tree, apt_tree.binary_key(key), cache, debootstrap)
    if recipe.packages:
        progress(f"{label}: packages")
        _install(root, recipe.packages, target, tree, apt_tree.public_key(key))
    _finish(root, recipe)
    progress(f"{label}: pack")
    layer = archive.pack(root, work / "layer.tar.gz", int(CREATED.timestamp()))
    path = work / recipe.archive
    reference = f"{recipe.name}:{recipe.tag}"
    config = _config(recipe)
    digest = archive.write(path, reference, layer, target.arch, config, CREATED.strftime("%Y-%m-%dT%H:%M:%SZ"))
    sha256, size = cache.add(path)
    return Made(sha256, size, digest)


def _base(
    root: Path, target: Target, parts: LockedImage, tree: Path, keyring: bytes, cache: Cache, debootstrap: str
) -> None:
    """Make the smallest root file system, or unpack the one that an earlier image made of the same packages."""
    name = hashlib.sha256(json.dumps([RECIPE_VERSION, target.release, target.arch, *parts.base]).encode()).hexdigest()
    kept = cache.root / "roots" / f"{name}.tar"
    if kept.is_file():
        root.mkdir()
        with tarfile.open(kept) as stored:
            stored.extractall(root, numeric_owner=True, filter="fully_trusted")
        return
    path = tree.parent / "keyring.gpg"
    path.write_bytes(keyring)
    env = settings.environment(SOURCE_DATE_EPOCH=str(int(CREATED.timestamp())), LC_ALL="C.UTF-8", TMPDIR=None)
    command = [debootstrap, "--variant=minbase", f"--arch={target.arch}", f"--keyring={path}", "--force-check-gpg"]
    process.run([*command, target.release, root, tree.as_uri()], env=env)
    kept.parent.mkdir(exist_ok=True)
    beside = kept.with_suffix(".partial")
    with beside.open("wb") as file:
        file.writelines(archive.tar_stream(root, int(CREATED.timestamp())))
    beside.replace(kept)


def _install(root: Path, packages: Sequence[str], target: Target, tree: Path, key: bytes) -> None:
    """Install packages in the root by its own apt, from the local repository and nothing else."""
    (root / "etc/dpkg/dpkg.cfg.d/penstock-build").write_text(NO_DOCUMENTATION)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    (root / "etc/apt/penstock-build.asc").write_bytes(key)
    sources = root / "etc/apt/sources.list.d/penstock-build.list"
    sources.write_text(f"deb [signed-by=/etc/apt/penstock-build.asc] file:/{MOUNT} {target.release} main\n")
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    (root / MOUNT).mkdir(parents=True)
    env = settings.environment(
        DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8", SOURCE_DATE_EPOCH=str(int(CREATED.timestamp())), TMPDIR=None
    )
    options = "-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none"
    # in name spaces of its own: the mounts and whatever a package starts go away with it, even when it is killed
    script = f"""set -e
mount --bind "$1" "$2/{MOUNT}"
mount -t proc proc "$2/proc"
mount -t tmpfs tmpfs "$2/dev"
for device in null zero random urandom full tty; do
  touch "$2/dev/$device"; mount --bind "/dev/$device" "$2/dev/$device"
done
ln -s /proc/self/fd "$2/dev/fd"
root="$2"; shift 2
chroot "$root" apt-get {options} update
chroot "$root" apt-get {options} install --yes "$@"
"""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
    process.run([*command, "/bin/sh", "-c", script, "sh", tree, root, *packages], env=env)
    for path in (policy, sources, root / "etc/apt/penstock-build.asc", root / "etc/dpkg/dpkg.cfg.d/penstock-build"):
        path.unlink()


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


def _place(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(source, destination)


def _fingerprint(recipe: Image, target: Target, parts: LockedImage) -> str:
    """Return a hash of all that goes into an image."""
    content = [RECIPE_VERSION, recipe.model_dump(), target.release, target.arch, parts.model_dump()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
