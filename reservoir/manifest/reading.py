"""The way from text to a manifest whose parts fit together. Pure: touches no file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.errors import InputError
from common.yaml_document import check, parse
from reservoir.manifest.model import MACHINE, DebianGroup, Manifest, PythonGroup, RpmGroup, Target
from reservoir.manifest.releases import RELEASES

# where it stands, what is wrong with it, what to do
Finding = tuple[tuple[str | int, ...], str, str]


def load(text: str, source: str) -> Manifest:
    """Return the manifest in `text`; raises InputError that names line, reason and hint of every problem."""
    document = parse(text, source)
    manifest = check(Manifest, document)
    found = [*_repeated(manifest), *_dangling(manifest), *_unfit(manifest)]
    if found:
        raise InputError.of([document.problem(path, reason, hint) for path, reason, hint in found])
    return manifest


def _repeated(manifest: Manifest) -> Iterator[Finding]:
    """Yield each name that stands for two things."""
    images = [image.reference for image in manifest.images]
    named: list[tuple[str, list[str], list[str]]] = [
        ("targets", [target.name for target in manifest.targets], []),
        ("sources", [source.name for source in manifest.sources], []),
        ("version_sets", [one.name for one in manifest.version_sets], []),
        ("images", images, []),
        ("external_images", [image.reference for image in manifest.external_images], images),
        ("files", [file.name for file in manifest.files], []),
    ]
    for key, names, others in named:
        taken = set(others)
        for index, name in enumerate(names):
            if name in taken:
                yield (key, index), f"{name!r} stands twice", "rename or remove one"
            taken.add(name)


def _dangling(manifest: Manifest) -> Iterator[Finding]:
    """Yield each target and source that is named but does not exist."""
    targets = [target.name for target in manifest.targets]
    sources = [MACHINE, *(source.name for source in manifest.sources)]
    named: list[tuple[tuple[str | int, ...], list[str], list[str], str]] = [
        *((("targets", i, "sources"), t.sources, sources, "source") for i, t in enumerate(manifest.targets)),
        *(
            (("version_sets", i, "targets"), one.targets, targets, "target")
            for i, one in enumerate(manifest.version_sets)
        ),
        *((("images", i, "target"), [image.target], targets, "target") for i, image in enumerate(manifest.images)),
        *((("debian", name, "targets"), group.targets, targets, "target") for name, group in manifest.debian.items()),
        *((("rpm", name, "targets"), group.targets, targets, "target") for name, group in manifest.rpm.items()),
        *(
            (("python", "groups", name, "targets"), group.targets, targets, "target")
            for name, group in manifest.python.groups.items()
        ),
    ]
    for path, names, known, word in named:
        for name in names:
            if name not in known:
                hint = f"use one of: {', '.join(known)}" if known else f"add it under `{word}s`"
                yield path, f"no {word} is named {name!r}", hint


def _unfit(manifest: Manifest) -> Iterator[Finding]:
    """Yield what stands in a place where it cannot do its work."""
    known = {target.name: target for target in manifest.targets}
    for index, target in enumerate(manifest.targets):
        yield from _unfit_target(manifest, index, target)
    for index, source in enumerate(manifest.sources):
        if (source.kind == "debian") != (source.suite is not None):
            reason = "a Debian source needs a suite" if source.kind == "debian" else "an RPM source has no suite"
            yield ("sources", index, "suite"), reason, "give the suite of a Debian source, and only there"
        if source.kind == "rpm" and source.components:
            yield ("sources", index, "components"), "an RPM source has no components", "remove them"
        if source.kind == "debian" and source.unsigned_metadata:
            reason = "the signature of a Debian source covers its packages, too"
            yield ("sources", index, "unsigned_metadata"), reason, "remove it: only RPM sources may have it"
    for index, version_set in enumerate(manifest.version_sets):
        for name in version_set.equal:
            if name not in version_set.packages:
                reason = f"{name!r} is not among the packages of the version set"
                yield ("version_sets", index, "equal"), reason, "add it there"
    yield from _unfit_groups(manifest, known)
    yield from _unfit_images(manifest, known)


def _unfit_images(manifest: Manifest, known: Mapping[str, Target]) -> Iterator[Finding]:
    """Yield images whose target cannot make them, and signatures that cannot be looked for."""
    for index, external in enumerate(manifest.external_images):
        if external.signed_by and not external.source.startswith("docker://"):
            reason = "signatures of cosign lie in registries"
            yield ("external_images", index, "signed_by"), reason, "take the image by docker://, or remove it"
    for index, image in enumerate(manifest.images):
        if image.target in known and not known[image.target].bootstrap:
            reason = f"target {image.target!r} does not bring what a root file system is made of"
            yield ("images", index, "target"), reason, "set `bootstrap: true` on the target"
        elif image.python and image.target in known and not known[image.target].python:
            reason = f"target {image.target!r} has no Python"
            yield ("images", index, "python"), reason, "give the target's Python version"


def _unfit_groups(manifest: Manifest, known: Mapping[str, Target]) -> Iterator[Finding]:
    """Yield packages that no target would take, and targets that a group names in vain."""
    debian = [name for name, target in known.items() if target.os == "debian"]
    rpm = [name for name, target in known.items() if target.os == "rpm"]
    python = [name for name, target in known.items() if target.python]
    groups: list[tuple[tuple[str, ...], Mapping[str, PythonGroup | DebianGroup | RpmGroup], list[str], str]] = [
        (("debian",), manifest.debian, debian, "Debian packages"),
        (("rpm",), manifest.rpm, rpm, "RPM packages"),
        (("python", "groups"), manifest.python.groups, python, "Python packages"),
    ]
    for path, named, fitting, what in groups:
        for name, group in named.items():
            if not group.targets and not fitting:
                yield (*path, name), f"no target takes {what}", "add one that does, or remove the group"
            for target in group.targets:
                if target in known and target not in fitting:
                    reason = f"target {target!r} takes no {what}"
                    yield (*path, name, "targets"), reason, "name targets that do, or mend that target"
    if not python and (manifest.python.requirements or manifest.python.projects):
        yield ("python",), "no target takes Python packages", "give the `python` of a target, or remove them"


def _unfit_target(manifest: Manifest, index: int, target: Target) -> Iterator[Finding]:
    if target.os == "debian" and target.release not in RELEASES:
        reason = f"{target.release!r} is not a release of Debian or Ubuntu that is known"
        yield ("targets", index, "release"), reason, f"use one of: {', '.join(RELEASES)}"
    if target.os == "rpm" and target.bootstrap:
        yield ("targets", index, "bootstrap"), "only Debian targets can be bootstrapped", "remove it"
    if target.os == "rpm" and target.origins:
        yield ("targets", index, "origins"), "only apt knows origins", "choose by `sources` on an RPM target"
    if target.os == "rpm" and target.python and not target.glibc:
        reason = "which wheels run there is not known"
        yield ("targets", index, "glibc"), reason, "give the version of its C library, as `ldd --version` prints it"
    for source in manifest.target_sources(target):
        if source.kind != target.os:
            reason = f"source {source.name!r} has {source.kind} packages, the target takes {target.os}"
            yield ("targets", index, "sources"), reason, "name a source of the same kind"
