"""Every verb of `penstock reservoir` at 20,000 artifacts: wheels, Debian packages and files, a third each.

Usage: python -m tests.bench.artifacts [FOLDER [ARTIFACTS]]; prints one line of JSON a verb: seconds, those of CPU, in
all and for an artifact, the machine's load, the peak of its memory. Where others keep the cores busy, the seconds of
CPU tell what a verb does, and the others what it waited for. Ends with 1 where one misses its aim, which is meant for
20,000 artifacts on 2 quiet cores. The artifacts are small and real: what is measured is the work for each of them, not
the disk's rate.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from reservoir.contents.artifact import Artifact, DebianArtifact, PythonArtifact
from reservoir.contents.lock import Lock
from reservoir.download.cache import Cache
from tests.unit.reservoir.parts import STANZA, artifact, wheel
from tests.unit.reservoir.scan.advisories import advisory, write

PENSTOCK = Path(sys.executable).with_name("penstock")
VERSIONS = 5
BUILD_S, OTHER_S, MEMORY_MIB = 60, 15, 500
COPYRIGHT = "Format: https://example.org/copyright-format/1.0/\n\nFiles: *\nLicense: Expat\n"
MANIFEST = """\
schema: 1
name: large
version: "{version}"
targets:
  - {{name: debian12, release: bookworm, python: "3.11"}}
files:
"""
FILE = "  - {{name: {path.name}, url: '{url}', sha256: {sha256}}}\n"


@dataclass
class Bench:
    """The folder of one run; every verb is a process of its own, and `missed` are those above their aims."""

    folder: Path
    count: int
    missed: list[str] = field(default_factory=list)

    def verb(self, figure: str, *words: str | Path, aim: float = OTHER_S) -> Any:
        """Run `penstock reservoir`, print what it took, and return its answer."""
        # byte code is kept, as where the product is installed
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPYCACHEPREFIX": str(self.folder / "compiled"),
            "PENSTOCK_SIGNING_KEY": str(self.folder / "signing.key"),
            "PENSTOCK_CACHE": str(self.folder / "cache"),
            "PENSTOCK_DISK_STOP_PERCENT": "100",
        }
        answer, said = self.folder / "answer", self.folder / "said"
        streams = [(os.POSIX_SPAWN_OPEN, number, str(path), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
                   for number, path in ((1, answer), (2, said))]  # fmt: skip
        command = [str(PENSTOCK), "reservoir", *map(str, words)]
        start = time.perf_counter()
        process = os.posix_spawn(PENSTOCK, command, environment, file_actions=streams)
        _, status, used = os.wait4(process, 0)
        seconds = time.perf_counter() - start
        cpu_seconds = used.ru_utime + used.ru_stime
        if status:
            sys.exit(f"{' '.join(command)} failed:\n{said.read_text()}")
        memory = used.ru_maxrss / 1024
        result = {
            "bench": "artifacts",
            "figure": figure,
            "artifacts": self.count,
            "cores": os.cpu_count(),
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu_seconds, 2),
            "cpu_ms_an_artifact": round(1000 * cpu_seconds / self.count, 3),
            "load": round(os.getloadavg()[0], 1),
            "aim_seconds": aim,
            "peak_memory_mib": round(memory),
            "aim_memory_mib": MEMORY_MIB,
        }
        print(json.dumps(result), flush=True)
        if seconds > aim or memory > MEMORY_MIB:
            self.missed.append(figure)
        text = answer.read_text()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def build(self, figure: str, version: str, *words: str | Path, aim: float = BUILD_S) -> Any:
        """Build a version of the bundle, whose lock is the made one with the manifest's own digest."""
        manifest = self.folder / version / "manifest.yml"
        return self.verb(figure, "build", manifest, *words, "-o", self.folder / "out", "--json", aim=aim)


def deb(folder: Path, name: str, version: str) -> Path:
    """Write a Debian package with the one file that is read at a build: its copyright."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo(f"./usr/share/doc/{name}/copyright")
        content = f"{COPYRIGHT}Comment: {name} {version}\n".encode()
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    path = folder / f"{name}_{version}_amd64.deb"
    body = data.getvalue()
    path.write_bytes(b"!<arch>\n" + f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body)
    return path


def packages(folder: Path, count: int, cache: Cache) -> list[Artifact]:
    """Make so many wheels, and Debian packages that lie in the cache, as apt has no source to fetch them from."""
    made: list[Artifact] = []
    for number in range(count):
        name, version = f"demo_{number // VERSIONS}", f"1.{number % VERSIONS}"
        path = wheel(folder, name, version)
        described = artifact(path, PythonArtifact, name, version)
        made.append(described.model_copy(update={"origin": path.as_uri()}))
        name = name.replace("_", "-")
        path = deb(folder, name, version)
        package = artifact(path, DebianArtifact, name, version, stanza=STANZA.format(name=name, version=version))
        path.rename(cache.path(package.sha256))
        made.append(package)
    return made


def files(folder: Path, count: int) -> list[Path]:
    """Make so many files."""
    paths = [folder / f"file-{number}.bin" for number in range(count)]
    for path in paths:
        path.write_bytes(path.name.encode() * 100)
    return paths


def manifest(folder: Path, version: str, paths: list[Path]) -> Path:
    """Write a manifest of files into a folder of its own."""
    lines = [FILE.format(path=path, url=path.as_uri(), sha256=sha256(path.read_bytes()).hexdigest()) for path in paths]
    (folder / version).mkdir()
    path = folder / version / "manifest.yml"
    path.write_text(MANIFEST.format(version=version) + "".join(lines))
    return path


def lock(bench: Bench, version: str, paths: list[Path], packed: list[Artifact]) -> None:
    """Lock the files of a manifest, and add packages to the lock, whose closure is the work of uv and apt."""
    path = manifest(bench.folder, version, paths)
    bench.verb("lock", "lock", path, "--json")
    written = path.with_name("reservoir.lock")
    locked = Lock.model_validate_json(written.read_text())
    whole = locked.model_copy(update={"artifacts": [*packed, *locked.artifacts]})
    written.write_text(whole.model_dump_json(by_alias=True))


def integrator(bench: Bench, packed: list[Artifact], paths: list[Path]) -> str:
    """Run what an integrator runs before a bundle is carried, and take its media in; return the bundle."""
    lock(bench, "1.0", paths, packed)
    bundle = bench.build("build", "1.0")["bundle"]
    bench.build("build unchanged", "1.0")
    bench.verb("verify", "verify", bundle, "--json")
    scan = ("--advisories", bench.folder / "advisories")
    bench.verb("scan", "scan", bundle, *scan)
    size = sum(path.stat().st_size for path in Path(bundle).rglob("*") if path.is_file())
    # what the discs lose by whole sectors is about as much as such small files are
    media = bench.verb("split", "split", bundle, "--size", f"{(size + 4096 * bench.count) // 2}", "-o",
                       bench.folder / "media", "--json")["media"]  # fmt: skip
    bench.verb("verify media", "verify", *media, "--json")
    bench.verb("import media", "import", "--trust-first", *media, "--root", bench.folder / "other", "--json")
    return str(bundle)


def administrator(bench: Bench, bundle: str, packed: list[Artifact], paths: list[Path]) -> None:
    """Run what an administrator runs at a site, with a second version of the bundle that comes as a delta."""
    root = ("--root", bench.folder / "site")
    first = bench.verb("import", "import", "--trust-first", bundle, *root, "--json")["bundle"]
    bench.verb("import again", "import", "--trust-first", bundle, *root, "--json")
    bench.verb("publish", "publish", *root, "--json")
    receipt = bench.folder / "receipt.json"
    bench.verb("receipt", "receipt", *root, "-o", receipt)
    fingerprint = sha256(bytes.fromhex(json.loads(receipt.read_bytes())["receipt"]["site"])).hexdigest()
    paths[0].write_bytes(b"changed")
    lock(bench, "2.0", paths, packed)
    delta = bench.build("delta", "2.0", "--since", receipt, "--trust-site", fingerprint)["bundle"]
    bench.verb("import delta", "import", "--trust-first", delta, *root, "--json")
    bench.verb("publish again", "publish", *root, "--json")
    bench.verb("status", "status", *root, "--json")
    bench.verb("rollback", "rollback", *root, "--json")
    bench.verb("publish after rollback", "publish", *root, "--json")
    bench.verb("remove", "remove", first, "--withdraw", *root, "--json")
    bench.verb("prune", "prune", "--keep", "1", *root, "--json")


def main() -> None:
    """Measure in a folder that goes away at the end."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    with tempfile.TemporaryDirectory(dir=parent) as name:
        bench = Bench(Path(name), count)
        parts = bench.folder / "parts"
        parts.mkdir()
        packed = packages(parts, count // 3, Cache(bench.folder / "cache"))
        paths = files(parts, count - len(packed))
        now = datetime.now(UTC).isoformat()
        entries = [advisory(f"TEST-{eco}", eco, "none", versions=("1",), modified=now) for eco in ("PyPI", "Debian:12")]
        write(bench.folder / "advisories", *entries)
        administrator(bench, integrator(bench, packed, paths), packed, paths)
        if bench.missed:
            sys.exit(f"above their aims: {', '.join(bench.missed)}")


if __name__ == "__main__":
    main()
