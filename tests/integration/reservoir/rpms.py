"""Small real RPM packages, made by rpmbuild, signed by rpmsign, in repositories of their own; dnf without a way out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Epoch: {epoch}
Summary: A package for tests
License: MIT
{architecture}
{lines}
%description
A package for tests.
%install
{install}
%files
{files}
"""
PORT = 8765


def call(*words: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env=os.environ | dict(environment or {}),
        check=False,
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Package:
    """What a package is; `lines` stand in its spec file, such as `Requires: (a or b)`."""

    name: str
    lines: Sequence[str] = ()
    version: str = "1.0"
    release: str = "1"
    epoch: int = 0
    arch: str = "noarch"
    files: Sequence[str] = ()

    @property
    def identity(self) -> str:
        """Return name, epoch, version, release and architecture, as modules write them."""
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{self.arch}"

    def build(self, folder: Path) -> Path:
        """Make the package below a folder and return its file."""
        work = folder / self.identity
        work.mkdir(parents=True)
        spec = work / f"{self.name}.spec"
        spec.write_text(
            SPEC.format(
                name=self.name,
                version=self.version,
                release=self.release,
                epoch=self.epoch,
                architecture="BuildArch: noarch" if self.arch == "noarch" else "",
                lines="\n".join(self.lines),
                install="\n".join(f"install -D /dev/null %{{buildroot}}{file}" for file in self.files),
                files="\n".join(self.files),
            )
        )
        target = ["--target", self.arch] if self.arch != "noarch" else []
        call("rpmbuild", "-bb", "--quiet", *target, "--define", f"_topdir {work}", spec)
        (made,) = work.glob("RPMS/*/*.rpm")
        return made


class Vendor:
    """Someone with an OpenPGP key of GnuPG."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(mode=0o700)
        self.user = f"{name} <{name}@example.org>"
        self.environment = {"GNUPGHOME": str(folder)}
        self._gpg("--quick-generate-key", self.user, "rsa2048", "sign", "never")
        self.public = call("gpg", "--armor", "--export", environment=self.environment)

    def sign(self, packages: Iterable[Path]) -> None:
        """Sign packages in place."""
        program = ("--define", "__gpg /usr/bin/gpg", "--define", f"_gpg_name {self.user}")
        call("rpmsign", "--addsign", *program, *packages, environment=self.environment)

    def sign_beside(self, path: Path) -> None:
        """Write the signature of a file beside it, in place of an older one."""
        self._gpg("--yes", "--armor", "--detach-sign", str(path))

    def close(self) -> None:
        """End the agent that GnuPG started for the key, which is told so and ends afterwards.

        `gpgconf --kill` looks for it where one would be started now: in another folder, once anybody made /run/user/0.
        """
        agent = ("--full", f"gpg-agent --homedir {self.environment['GNUPGHOME']} ")
        subprocess.run(("pkill", *agent), check=False)
        deadline = time.monotonic() + 60
        while subprocess.run(("pgrep", *agent), stdout=subprocess.DEVNULL, check=False).returncode == 0:
            assert time.monotonic() < deadline, agent
            time.sleep(0.1)

    def _gpg(self, *words: str) -> None:
        call("gpg", "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback", *words,
             environment=self.environment)  # fmt: skip


class Upstream:
    """A package source as a vendor serves it."""

    def __init__(self, folder: Path, vendor: Vendor) -> None:
        self.folder = folder
        self.vendor = vendor
        self.repomd = folder / "repodata/repomd.xml"
        (folder / "Packages").mkdir(parents=True)

    def add(self, *packages: Package) -> None:
        """Make packages and sign them."""
        made = [package.build(self.folder.parent / f"{self.folder.name}-made") for package in packages]
        self.vendor.sign(made)
        for path in made:
            path.rename(self.folder / "Packages" / path.name)

    def index(self, *options: str, modules: str = "") -> None:
        """Write the metadata anew and sign it."""
        call(PROGRAMS / "createrepo_c", "--quiet", *options, self.folder)
        if modules:
            (self.folder / "modules.yaml").write_text(modules)
            call(PROGRAMS / "modifyrepo_c", self.folder / "modules.yaml", self.repomd.parent)
        self.vendor.sign_beside(self.repomd)


@dataclass(frozen=True)
class Dnf:
    """Debian's dnf with a root of its own below `folder`, in a network of its own where only `served` answers."""

    folder: Path
    served: Path
    repository: str
    options: Sequence[str] = ()

    def install(self, *names: str, code: int = 0) -> str:
        """Install into an empty root, every signature checked; return what dnf said."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "repos").mkdir(parents=True)
        (self.folder / "repos/site.repo").write_text(self.repository)
        words = [
            "dnf",
            "--assumeyes",
            f"--installroot={self.folder}/root",
            "--releasever=9",
            "--forcearch=x86_64",
            f"--setopt=reposdir={self.folder}/repos",
            f"--setopt=cachedir={self.folder}/cache",
            "--setopt=module_platform_id=platform:el9",
            "--setopt=keepcache=0",
            *self.options,
            "install",
            *names,
        ]
        script = (
            "ip link set lo up && ! ip route show default | grep . || exit 99\n"
            f"{sys.executable} -m http.server --bind 127.0.0.1 --directory {self.served} {PORT} >/dev/null 2>&1 &\n"
            "server=$!\n"
            f"until (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done\n"
            '"$@"; code=$?\n'
            "kill $server\n"
            "exit $code\n"
        )
        # the agents of GnuPG that dnf starts end with it
        command = ["unshare", "--net", "--pid", "--fork", "bash", "-c", script, "bash", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def installed(self) -> set[str]:
        """Return what is installed, without the keys."""
        form = "%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH}\\n"
        out = call("rpm", f"--root={self.folder}/root", "-qa", "--qf", form)
        return {line for line in out.split() if not line.startswith("gpg-pubkey")}
