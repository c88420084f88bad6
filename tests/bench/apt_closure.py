"""Whether a lock holds what apt itself installs on a bare node: one JSON line, with what is missing and what is extra.

Each group is resolved as `penstock reservoir lock` does, from an empty system, and by the apt of a bare lab node from
the very same indexes. Missing is what the node would install and the closure lacks; extra is what the closure has and
the node neither installs nor has already.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from appliance.site import lab
from reservoir.artifacts.debian.apt import private_apt
from reservoir.download.cache import Cache
from reservoir.manifest.model import Manifest

GROUPS = {
    "containers": ["docker.io"],
    "fabric": ["rdma-core"],
    "storage": ["nfs-kernel-server"],
    "modules": ["dkms"],
    "compilers": ["build-essential"],
    "batch": ["slurm-wlm"],
    "database": ["postgresql"],
}
RELEASES = ("bookworm", "trixie")
OPTIONS = """\
Dir::State::Lists "/run/closure/state/lists";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "/run/closure/etc/sources.list.d";
Dir::Etc::Preferences "/run/closure/etc/preferences";
APT::Install-Recommends "false";
"""


def main() -> None:
    """Compare every group on both releases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="folder of the product's bundle, for its lab nodes")
    bundle = parser.parse_args().bundle
    begin = time.monotonic()
    found = [line for release in RELEASES for line in compare(release, bundle)]
    figures = {
        "bench": "apt_closure",
        "groups": [name for names in GROUPS.values() for name in names],
        "releases": RELEASES,
        "packages": sum(len(packages) for packages, _, _ in found),
        "missing": sorted({name for _, missing, _ in found for name in missing}),
        "extra": sorted({name for _, _, extra in found for name in extra}),
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(figures))


def compare(release: str, bundle: Path) -> list[tuple[set[str], set[str], set[str]]]:
    """Return for each group the closure, what is missing in it and what it has too much, as `name=version`."""
    wanted = Manifest.model_validate(
        {"schema": 1, "name": "bench", "version": "1", "targets": [{"name": "node", "release": release}]}
    )
    image = lab.node_image(bundle, release, lambda _: None)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        apt = private_apt(Cache(Path(folder)), wanted.targets[0], wanted, Path(folder))
        apt.update()
        (apt.root / "node.conf").write_text(OPTIONS)
        present = packages(
            on_node(image, apt.root, "dpkg-query", "--show", "--showformat=Inst ${Package} (${Version} \n")
        )
        found = []
        for name, names in GROUPS.items():
            closure = {f"{deb.name}={deb.version}" for deb in apt.closure(names, name)}
            installed = packages(on_node(image, apt.root, "apt-get", "install", "--simulate", *names))
            found.append((closure, installed - closure, closure - installed - present))
        return found


def on_node(image: str, root: Path, *command: str) -> str:
    """Run a command on a bare node that has the indexes of `root` and no network; return what it printed."""
    words = ["docker", "run", "--rm", "--network", "none", "--volume", f"{root}:/run/closure:ro"]
    words += ["--env", "APT_CONFIG=/run/closure/node.conf", image, *command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def packages(said: str) -> set[str]:
    """Return the packages that apt says it installs, as `name=version`."""
    return {
        f"{name}={version}" for name, version in re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", said, re.MULTILINE)
    }


if __name__ == "__main__":
    main()
