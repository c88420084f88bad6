"""The manifest: what a bundle must contain, in the words of the person who writes it. Pure: touches no file."""

from __future__ import annotations

import hashlib
import posixpath
import re
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from reservoir.document import Document, check, parse
from reservoir.errors import InputError, Problem

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$", max_length=64)]
DebianName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
UnitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@._\\:-]+\.[a-z]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
GLIBC = {"bookworm": "2.36", "trixie": "2.41"}


def _version(text: str) -> str:
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


class Model(BaseModel):
    """Base of what stands in a manifest: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(Model):
    """A kind of machine that the bundle serves. `bootstrap` adds what makes a root file system from nothing.

    `origins` are apt's words for the releases that may go in (see `apt_preferences(5)`); everything else that this
    machine's package sources offer stays out.
    """

    name: Name
    os: Literal["debian"] = "debian"
    release: Literal["bookworm", "trixie"]
    arch: Literal["amd64", "arm64"] = "amd64"
    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+$")]
    bootstrap: bool = False
    origins: list[Annotated[str, StringConstraints(pattern=r"^[a-z]=[^\s]+(,[a-z]=[^\s]+)*$")]] = []

    @property
    def glibc(self) -> str:
        """Return the version of the C library, which decides which wheels run."""
        return GLIBC[self.release]

    @property
    def pins(self) -> list[str]:
        """Return the origins, or the distribution's own."""
        return self.origins or [f"o={self.os.capitalize()},n={self.release}*"]


class Project(Model):
    """A local Python project whose wheel is built into the bundle; `path` counts from the manifest's folder."""

    path: Annotated[str, AfterValidator(_inside)]
    extras: list[Name] = []


class PythonPackages(Model):
    """Python requirements, as pip writes them, and local projects; their closure goes into the bundle."""

    requirements: list[Annotated[str, AfterValidator(_requirement)]] = []
    projects: list[Project] = []


class File(Model):
    """A file served as it is; `url` may be `file:` for one on this machine."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
    url: Annotated[str, StringConstraints(pattern=r"^(https?|file)://")]
    sha256: Sha256
    version: str = "0"


class ImageFile(Model):
    """A file that is written into an image after its packages are installed; `mode` is octal."""

    path: Annotated[str, AfterValidator(_absolute)]
    content: str
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")] = "0644"


class Units(Model):
    """Units of systemd that an image enables or masks."""

    enable: list[UnitName] = []
    mask: list[UnitName] = []


class Image(Model):
    """A container image built from the bundle's own Debian packages.

    `session` says that users may run sessions in it; `remove` are paths taken out at the end.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")]
    tag: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
    target: Name
    packages: list[DebianName]
    session: bool = False
    files: list[ImageFile] = []
    units: Units = Units()
    remove: list[Annotated[str, AfterValidator(_absolute)]] = []
    command: list[str] = ["/bin/bash"]
    environment: dict[str, str] = {}
    stop_signal: Annotated[str, StringConstraints(pattern=r"^SIG[A-Z0-9+]+$")] | None = None

    @property
    def archive(self) -> str:
        """Return the name of the image's archive: `penstock/python:3.11` is `penstock_python_3.11.tar`."""
        return re.sub(r"[/:]", "_", f"{self.name}:{self.tag}") + ".tar"


class Manifest(Model):
    """Everything that a bundle must contain. Groups of `debian` are resolved apart, so that they may conflict."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: Name
    version: Annotated[str, AfterValidator(_version)]
    targets: Annotated[list[Target], Field(min_length=1)]
    python: PythonPackages = PythonPackages()
    debian: dict[Name, list[DebianName]] = {}
    images: list[Image] = []
    files: list[File] = []

    def target(self, name: str) -> Target:
        """Return the target of that name."""
        return next(target for target in self.targets if target.name == name)

    def digest(self) -> str:
        """Return a hash of what the manifest means; comments, order of keys and layout do not count."""
        return hashlib.sha256(self.model_dump_json(by_alias=True).encode()).hexdigest()


def load(text: str, source: str) -> Manifest:
    """Return the manifest in `text`; raises InputError that names line, reason and cure of every problem."""
    document = parse(text, source)
    manifest = check(Manifest, document)
    problems = [*_repeated(manifest, document), *_dangling(manifest, document)]
    if problems:
        raise InputError.of(problems)
    return manifest


def _repeated(manifest: Manifest, document: Document) -> list[Problem]:
    """Return a problem for each name that stands for two things."""
    problems = []
    named: list[tuple[str, list[str]]] = [
        ("targets", [target.name for target in manifest.targets]),
        ("images", [image.archive for image in manifest.images]),
        ("files", [file.name for file in manifest.files]),
    ]
    for key, names in named:
        for index, name in enumerate(names):
            if name in names[:index]:
                problems.append(document.problem((key, index), f"{name!r} stands twice", "rename or remove one"))
    return problems


def _dangling(manifest: Manifest, document: Document) -> list[Problem]:
    """Return a problem for each image that cannot be built on its target."""
    known = {target.name: target for target in manifest.targets}
    problems = []
    for index, image in enumerate(manifest.images):
        path = ("images", index, "target")
        if image.target not in known:
            problems.append(
                document.problem(path, f"no target is named {image.target!r}", f"use one of: {', '.join(known)}")
            )
        elif not known[image.target].bootstrap:
            problems.append(
                document.problem(
                    path,
                    f"target {image.target!r} does not bring what a root file system is made of",
                    "set `bootstrap: true` on the target",
                )
            )
    return problems
