"""The manifest: what a bundle must contain, in the words of the person who writes it. Pure: touches no file."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from common.strict import StrictModel
from reservoir.manifest import credentials
from reservoir.manifest.releases import RELEASES

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$", max_length=64)]
DebianName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
RpmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$")]
# `name`, or `name=version` where the version is exact or ends in `*`
DebianPackage = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+\*?)?$")]
# a name, or whatever else a package provides: `perl(strict)`, `/usr/bin/env`, each with a comparison where needed
RpmPackage = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/][^\s\x00-\x1f]*( (=|<|>|<=|>=) [^\s]+)?$")]
ModuleStream = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._+-]+:[A-Za-z0-9._+-]+$")]
VersionPattern = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9.+:~^_-]+\*?)$")]
Origin = Annotated[str, StringConstraints(pattern=r"^[a-z]=[^\s]+(,[a-z]=[^\s]+)*$")]
UnitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@._\\:-]+\.[a-z]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# what the kernel calls architectures, by Debian's name
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# stands among the names of sources for this machine's own
MACHINE = "machine"


def version_number(text: str) -> str:
    """Return `text` where Python's rules for versions can order it; raises ValueError where they cannot."""
    try:
        Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is not a version") from error
    return text


def _requirement(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is not a Python requirement: {error}") from error
    if requirement.url:
        raise ValueError(f"{text!r} points to an address; list a local project under `projects`")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
        raise ValueError(f"{path!r} is not a clean absolute path")
    return path


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} must be a path below the folder of the manifest")
    return path


def _listed(field: str) -> Callable[[object], object]:
    """Return a validator that takes a bare list for a group with nothing else in it."""
    return lambda value: {field: value} if isinstance(value, list) else value


class Target(StrictModel):
    """A kind of machine that the bundle serves. `bootstrap` adds what makes a root file system from nothing.

    `os` says how the machine installs packages: `debian` by apt, as Ubuntu does, too, `rpm` by dnf; `release` is the
    code name of a release of Debian or Ubuntu, or the distribution's own word for an RPM release (it fills
    `$releasever`). Without `python` the target gets no Python packages. `glibc` decides which wheels run; releases
    of Debian and Ubuntu know theirs. `sources` are names of the manifest's
    sources, and `machine` for this machine's own package sources; where it is empty, only the machine's are asked.
    `osv` names the ecosystem whose advisories speak of the target's packages, such as `Rocky Linux:9`; releases of
    Debian and Ubuntu know theirs. `origins` are apt's words for the releases that may go in (see
    `apt_preferences(5)`); everything else that this machine's package sources offer stays out.
    """

    name: Name
    os: Literal["debian", "rpm"] = "debian"
    release: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    arch: Literal["amd64", "arm64"] = "amd64"
    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+$")] | None = None
    glibc: Annotated[str, StringConstraints(pattern=r"^2\.\d+$")] | None = None
    osv: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z ]*(:\S[^\x00-\x1f]*)?$")] | None = None
    bootstrap: bool = False
    sources: list[Name] = Field(default_factory=list)
    origins: list[Origin] = Field(default_factory=list)

    @property
    def c_library(self) -> str:
        """Return the version of the C library, which decides which wheels run; raises KeyError where none is known."""
        return self.glibc or RELEASES[self.release].glibc

    @property
    def interpreter(self) -> str:
        """Return the version of Python; raises ValueError where the target has none."""
        if self.python is None:
            raise ValueError(f"target {self.name} has no Python")
        return self.python

    @property
    def pins(self) -> list[str]:
        """Return the origins, or the distribution's own: the release, its updates and its security updates."""
        return self.origins or RELEASES[self.release].pins(self.release)

    @property
    def asks_machine(self) -> bool:
        """Say whether this machine's own package sources are asked."""
        return not self.sources or MACHINE in self.sources


class Source(StrictModel):
    """A package source beside the machine's own.

    `keys` are files with OpenPGP keys, counted from the manifest's folder: the source's metadata must be signed by one
    of them. `suite` and `components` belong to Debian sources; a suite that ends in `/` names a flat repository.
    `unsigned_metadata` belongs to RPM sources: nobody signs their repodata, as Fedora does not; packages must be
    signed everywhere.
    """

    name: Name
    kind: Literal["debian", "rpm"]
    url: Annotated[str, StringConstraints(pattern=r"^(https?|file)://")]
    keys: Annotated[list[Annotated[str, AfterValidator(_inside)]], Field(min_length=1)]
    suite: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]+$")] | None = None
    components: list[Name] = Field(default_factory=list)
    unsigned_metadata: bool = False


class Project(StrictModel):
    """A local Python project whose wheel is built into the bundle; `path` counts from the manifest's folder."""

    path: Annotated[str, AfterValidator(_inside)]
    extras: list[Name] = Field(default_factory=list)


class PythonGroup(StrictModel):
    """Requirements that are resolved apart from all others; without `targets`, for every target that has Python."""

    requirements: list[Annotated[str, AfterValidator(_requirement)]]
    targets: list[Name] = Field(default_factory=list)


class Sdist(StrictModel):
    """Sources of a package that has no wheel: one is built of them, with the wheels of the requirements `build`."""

    url: Annotated[str, StringConstraints(pattern=r"^(https?|file)://")]
    sha256: Sha256
    build: list[Annotated[str, AfterValidator(_requirement)]] = Field(default_factory=list)


class PythonPackages(StrictModel):
    """Python requirements, as pip writes them, and local projects; their closure goes into the bundle.

    Wheels that are built of `sdists` count as if an index had them. Groups are resolved apart, so that they may
    conflict.
    """

    requirements: list[Annotated[str, AfterValidator(_requirement)]] = Field(default_factory=list)
    projects: list[Project] = Field(default_factory=list)
    sdists: list[Sdist] = Field(default_factory=list)
    groups: dict[Name, Annotated[PythonGroup, BeforeValidator(_listed("requirements"))]] = Field(default_factory=dict)


class DebianGroup(StrictModel):
    """Debian packages that install together; `recommends` takes their recommended packages, too.

    Without `targets`, for every Debian target.
    """

    packages: list[DebianPackage]
    recommends: bool = False
    targets: list[Name] = Field(default_factory=list)


class RpmGroup(StrictModel):
    """RPM packages that install together; `recommends` takes weak dependencies, too; `modules` are enabled streams.

    Without `targets`, for every RPM target.
    """

    packages: list[RpmPackage]
    recommends: bool = False
    modules: list[ModuleStream] = Field(default_factory=list)
    targets: list[Name] = Field(default_factory=list)


class VersionSet(StrictModel):
    """Packages whose versions belong together: a driver, its fabric manager, the kernel's headers.

    `packages` gives each the version that may go in, exact or with `*` at the end. Packages in `equal` must have one
    upstream version. Where one of them goes into a target, all must.
    """

    name: Name
    packages: Annotated[dict[RpmName, VersionPattern], Field(min_length=1)]
    equal: list[str] = Field(default_factory=list)
    reason: str = ""
    targets: list[Name] = Field(default_factory=list)


class File(StrictModel):
    """A file served as it is; `url` may be `file:` for one on this machine."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
    url: Annotated[str, StringConstraints(pattern=r"^(https?|file)://")]
    sha256: Sha256
    version: str = "0"


class ImageFile(StrictModel):
    """A file that is written into an image after its packages are installed; `mode` is octal."""

    path: Annotated[str, AfterValidator(_absolute)]
    content: str
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")] = "0644"


class Units(StrictModel):
    """Units of systemd that an image enables or masks."""

    enable: list[UnitName] = Field(default_factory=list)
    mask: list[UnitName] = Field(default_factory=list)


class Image(StrictModel):
    """A container image built from the bundle's own Debian packages and Python wheels.

    `python` are requirements that are resolved for this image alone and installed into an environment of its own;
    `session` says that users may run sessions in it; `remove` are paths taken out at the end. `command` follows the
    `entrypoint`, where there is one, unless a container has another.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")]
    tag: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
    target: Name
    packages: list[DebianName]
    python: list[Annotated[str, AfterValidator(_requirement)]] = Field(default_factory=list)
    session: bool = False
    files: list[ImageFile] = Field(default_factory=list)
    units: Units = Units()
    remove: list[Annotated[str, AfterValidator(_absolute)]] = Field(default_factory=list)
    entrypoint: list[str] = Field(default_factory=list)
    command: list[str] = Field(default=["/bin/bash"])
    environment: dict[str, str] = Field(default_factory=dict)
    stop_signal: Annotated[str, StringConstraints(pattern=r"^SIG[A-Z0-9+]+$")] | None = None

    @model_validator(mode="after")
    def _has_environment_for_python(self) -> Image:
        if self.python and "python3-venv" not in self.packages:
            raise ValueError("Python packages need an environment to lie in: add python3-venv to the packages")
        return self

    @property
    def reference(self) -> str:
        """Return name and tag, as in `penstock/python:3.11`."""
        return f"{self.name}:{self.tag}"


class ExternalImage(StrictModel):
    """A container image that exists already, taken as it is: its digest stays.

    `source` is an address as skopeo writes them: `docker://`, `docker-archive:`, `oci-archive:`, `oci:` or
    `docker-daemon:`; paths count from the manifest's folder. `architectures` chooses from an image of several;
    empty takes all of them. `signed_by` are files with the makers' public keys, counted from that folder: one of them
    must have signed the image with cosign in its registry.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")]
    tag: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
    source: Annotated[
        str, StringConstraints(pattern=r"^(docker://|(docker-archive|oci-archive|oci|docker-daemon):)\S+$")
    ]
    architectures: list[Literal["amd64", "arm64"]] = Field(default_factory=list)
    session: bool = False
    signed_by: list[Annotated[str, AfterValidator(_inside)]] = Field(default_factory=list)

    @property
    def reference(self) -> str:
        """Return name and tag."""
        return f"{self.name}:{self.tag}"


class Security(StrictModel):
    """What the bundle is held against when it is built: offline advisories and a policy, beside the manifest."""

    advisories: Annotated[str, AfterValidator(_inside)]
    policy: Annotated[str, AfterValidator(_inside)] | None = None


class Manifest(StrictModel):
    """Everything that a bundle must contain. Groups of packages are resolved apart, so that they may conflict."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: Name
    version: Annotated[str, AfterValidator(version_number)]
    targets: Annotated[list[Target], Field(min_length=1)]
    sources: list[Source] = Field(default_factory=list)
    # names of `sources`, or suites of the machine's own sources, whose metadata may be past its time
    allow_expired: list[str] = Field(default_factory=list)
    python: PythonPackages = PythonPackages()
    debian: dict[Name, Annotated[DebianGroup, BeforeValidator(_listed("packages"))]] = Field(default_factory=dict)
    rpm: dict[Name, Annotated[RpmGroup, BeforeValidator(_listed("packages"))]] = Field(default_factory=dict)
    version_sets: list[VersionSet] = Field(default_factory=list)
    images: list[Image] = Field(default_factory=list)
    external_images: list[ExternalImage] = Field(default_factory=list)
    files: list[File] = Field(default_factory=list)
    security: Security | None = None
    # for how long its maker answers for a bundle, from its build on
    valid_days: Annotated[int, Field(ge=1, le=36_500)] | None = None

    def target(self, name: str) -> Target:
        """Return the target of that name."""
        return next(target for target in self.targets if target.name == name)

    def debian_groups(self, target: Target) -> dict[str, DebianGroup]:
        """Return the groups of Debian packages that go into a target, by name."""
        return _for_target(self.debian, target) if target.os == "debian" else {}

    def rpm_groups(self, target: Target) -> dict[str, RpmGroup]:
        """Return the groups of RPM packages that go into a target, by name."""
        return _for_target(self.rpm, target) if target.os == "rpm" else {}

    def python_groups(self, target: Target) -> dict[str, PythonGroup]:
        """Return the groups of Python requirements that go into a target, by name."""
        return _for_target(self.python.groups, target) if target.python else {}

    def target_version_sets(self, target: Target) -> list[VersionSet]:
        """Return the version sets that bind a target."""
        return [one for one in self.version_sets if not one.targets or target.name in one.targets]

    def target_sources(self, target: Target) -> list[Source]:
        """Return the sources of the manifest that a target names."""
        return [source for source in self.sources if source.name in target.sources]

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of sources, files and sdists, with the users and passwords that they may carry."""
        fetched = [*(file.url for file in self.files), *(sdist.url for sdist in self.python.sdists)]
        return [*(source.url for source in self.sources), *fetched]

    def digest(self) -> str:
        """Return a hash of what the manifest means; what no closure hangs on does not count."""
        public: dict[str, Any] = {
            "sources": [source.model_copy(update={"url": credentials.public(source.url)}) for source in self.sources],
            "files": [file.model_copy(update={"url": credentials.public(file.url)}) for file in self.files],
        }
        built = [sdist.model_copy(update={"url": credentials.public(sdist.url)}) for sdist in self.python.sdists]
        public["python"] = self.python.model_copy(update={"sdists": built})
        # locks that were made before there were any go on counting
        left_out: dict[str, Any] = {"valid_days": True} | ({} if built else {"python": {"sdists"}})
        if not any(image.signed_by for image in self.external_images):
            left_out["external_images"] = {"__all__": {"signed_by"}}
        meant = self.model_copy(update=public).model_dump_json(by_alias=True, exclude=left_out)
        return hashlib.sha256(meant.encode()).hexdigest()


Group = TypeVar("Group", PythonGroup, DebianGroup, RpmGroup)


def _for_target(groups: Mapping[str, Group], target: Target) -> dict[str, Group]:
    return {name: group for name, group in groups.items() if not group.targets or target.name in group.targets}
