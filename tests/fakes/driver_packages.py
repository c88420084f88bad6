"""Small packages with the names and relations of Debian's driver for NVIDIA's GPUs, as a flat repository of apt's.

`dkms` says that it has built the modules for the kernels in /etc/fake-dkms, one a line, and for no other.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

DKMS = """#!/bin/sh
[ "$*" = status ] || exit 2
version=$(dpkg-query --show --showformat='${Version}' nvidia-kernel-dkms) || exit 0
while read -r kernel; do
    echo "nvidia-current/${version%-*}, $kernel, x86_64: installed"
done < /etc/fake-dkms
"""
CONTROL = """Package: {name}
Version: {version}
Architecture: all
Maintainer: somebody <somebody@example.org>
Description: {name}
{relations}"""
# as `apt-cache show` has them on Debian 12, without what is beside the driver
RELATIONS = {
    "nvidia-kernel-dkms": "nvidia-kernel-support, dkms",
    "nvidia-kernel-support": "nvidia-alternative (= {version}), nvidia-modprobe",
    "nvidia-alternative": "",
    "libcuda1": "nvidia-alternative (= {version})",
    "libnvidia-ml1": "nvidia-alternative (= {version})",
    "libnvidia-cfg1": "nvidia-alternative (= {version})",
    "libnvcuvid1": "nvidia-alternative (= {version}), libcuda1 (= {version})",
    "libnvidia-encode1": "nvidia-alternative (= {version}), libnvcuvid1 (= {version})",
    "nvidia-cuda-mps": "",
    "nvidia-smi": "nvidia-alternative (= {version}), libnvidia-ml1 (= {version})",
}
OTHERS = {"dkms": "3.0.10-8", "nvidia-modprobe": "535.161.07-1", "nvidia-persistenced": "535.171.04-1"}


def publish(folder: Path, *versions: str) -> None:
    """Make a repository in `folder` that has the driver in these versions."""
    packages = [(name, version, needs) for version in versions for name, needs in RELATIONS.items()]
    packages += [(name, version, "libnvidia-cfg1" if "persist" in name else "") for name, version in OTHERS.items()]
    stanzas = [_deb(folder, name, version, needs.format(version=version)) for name, version, needs in packages]
    (folder / "Packages").write_text("\n".join(stanzas))


def _deb(folder: Path, name: str, version: str, needs: str) -> str:
    control = CONTROL.format(name=name, version=version, relations=f"Depends: {needs}\n" if needs else "")
    root = folder / f"{name}_{version}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(control)
    if name == "dkms":
        program = root / "usr/sbin/dkms"
        program.parent.mkdir(parents=True)
        program.write_text(DKMS)
        program.chmod(0o755)
    deb = folder / f"{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--build", "-Znone", root, deb], check=True, capture_output=True)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    return f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
