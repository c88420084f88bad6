"""The closure of RPM groups: their packages, the keys that vouch for these, the chosen modules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from urllib.parse import urljoin

import httpx
from pydantic import ValidationError

from common.errors import IntegrityError
from reservoir.artifacts.kind import Resolved, Resolving
from reservoir.artifacts.rpm import metadata, modules, source
from reservoir.artifacts.rpm.modules import Module
from reservoir.artifacts.rpm.solver import Rpm, Solver
from reservoir.contents import version_sets
from reservoir.contents.artifact import KeyMetadata, ModuleMetadata, RpmArtifact, RpmMetadata, RpmPart
from reservoir.download import fetch
from reservoir.manifest.model import MACHINES, Target, VersionSet

METADATA_FILES = ("primary", "filelists", "modules")
DOWNLOADS = 8


def of_target(resolving: Resolving, target: Target) -> Resolved:
    """Return the closure of every group of a target, and what dnf needs beside it."""
    resolving.progress(f"resolve RPM packages for {target.name}")
    groups = resolving.manifest.rpm_groups(target)
    wanted = [
        (stream, resolving.where(f"rpm.{name}.modules")) for name, group in groups.items() for stream in group.modules
    ]
    repositories = source.of_target(resolving, target)
    addresses = [repository.address for repository in repositories]
    with fetch.client(resolving.indexes().certificates, addresses) as http:
        solver, offered = _read(resolving, target, repositories, http)
        active = modules.enable(offered, wanted)
        _hide(solver, offered, active, resolving.manifest.target_version_sets(target))
        solver.prepare()
        rpms: dict[str, Rpm] = {}
        for name, group in groups.items():
            where = resolving.where(f"rpm.{name}")
            chosen = solver.closure(group.packages, where, recommends=group.recommends) if group.packages else []
            rpms |= {rpm.url: rpm for rpm in chosen}
        epochs = solver.epochs({rpm.source for rpm in rpms.values()})
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            artifacts = list(
                pool.map(lambda rpm: _package(resolving, target, http, rpm, epochs.get(rpm.source)), rpms.values())
            )
    parts = [*_keys(target, rpms.values()), *(_module(target, module) for module in active)]
    versions = version_sets.of_target(resolving.manifest, target, artifacts, str(resolving.path))
    return Resolved([*artifacts, *parts], version_sets=versions)


def _read(
    resolving: Resolving, target: Target, repositories: Sequence[source.Repository], http: httpx.Client
) -> tuple[Solver, list[Module]]:
    """Read the metadata of every repository of the target."""
    solver = Solver(MACHINES[target.arch])
    offered: list[Module] = []
    for repository in repositories:
        if not repository.signed:
            resolving.progress(f"trust {repository.url} to say what {repository.name} offers: nobody signs that")
        may_be_older = repository.name in resolving.manifest.allow_expired
        files = metadata.read(http, resolving.cache, repository, METADATA_FILES, may_be_older=may_be_older)
        solver.add(repository, files)
        if "modules" in files:
            where = urljoin(repository.url, files["modules"].name)
            offered += modules.parse(files["modules"].text(), where)
    return solver, offered


def _hide(solver: Solver, offered: list[Module], active: list[Module], bound: list[VersionSet]) -> None:
    """Take out of the choice what modules hide, and the versions that version sets exclude."""
    hidden, visible, shadowed = modules.hidden(offered, active), modules.visible(active), modules.shadowed(active)
    patterns = [(name, pattern, one.name) for one in bound for name, pattern in one.packages.items()]

    def why(rpm: Rpm) -> str:
        if rpm.identity in hidden:
            return f"is in the module {', '.join(modules.owners(offered, rpm.identity))}, which is not enabled"
        if rpm.name in shadowed and rpm.identity not in visible:
            return "is hidden by an enabled module"
        for name, pattern, version_set in patterns:
            if name == rpm.name and not fnmatchcase(rpm.version, pattern):
                return f"is excluded by the version set {version_set}"
        return ""

    if offered or patterns:
        solver.hide(why)


def _package(resolving: Resolving, target: Target, http: httpx.Client, rpm: Rpm, epoch: str | None) -> RpmArtifact:
    if rpm.known.kind == "sha256":
        sha256 = rpm.known.digits
    else:
        sha256 = metadata.obtain(http, resolving.cache, rpm.url, rpm.known, rpm.size)
    try:
        return RpmArtifact(
            name=rpm.name,
            version=rpm.version,
            filename=rpm.filename,
            sha256=sha256,
            size=rpm.size,
            origin=rpm.url,
            targets=[target.name],
            metadata=RpmMetadata.model_validate(
                {
                    "arch": rpm.arch,
                    "keys": [f"keys/{key.fingerprint}" for key in rpm.repository.keys],
                    "license": rpm.licence,
                    "source_rpm": rpm.source,
                }
                | ({"source_epoch": epoch} if epoch is not None else {})
            ),
        )
    except ValidationError as error:
        raise IntegrityError(
            f"the metadata of {rpm.repository.name} names a package as none can be named: {rpm.identity}",
            where=rpm.url,
            hint="ask the keeper of the package source",
        ) from error


def _keys(target: Target, rpms: Iterable[Rpm]) -> list[RpmPart]:
    """Return the keys of the repositories that the packages come from: nodes check packages by them."""
    keys = {key.fingerprint: str(key) for rpm in rpms for key in rpm.repository.keys}
    return [
        _part(target, f"keys/{fingerprint}", fingerprint, f"{fingerprint}.asc", KeyMetadata(part="key", text=text))
        for fingerprint, text in sorted(keys.items())
    ]


def _module(target: Target, module: Module) -> RpmPart:
    build = f"{module.version}-{module.context}".rstrip("-")
    filename = f"{module.name}-{module.stream}-{build}.yaml"
    words = ModuleMetadata(part="module", stream=module.stream, text=module.text)
    return _part(target, f"modules/{module.name}", f"{module.stream}-{build}", filename, words)


def _part(target: Target, name: str, version: str, filename: str, words: KeyMetadata | ModuleMetadata) -> RpmPart:
    """Return a small file that is carried in the lock itself, so that every build has the same."""
    content = words.text.encode()
    return RpmPart(
        name=name,
        version=version,
        filename=filename,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        origin="metadata of the package source",
        targets=[target.name],
        metadata=words,
    )
