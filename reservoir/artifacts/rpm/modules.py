"""Modules: streams of packages that exclude each other, and hide packages of the same names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from common.errors import ConflictError, InputError, IntegrityError
from reservoir.contents.artifact import ModuleMetadata, RpmPart

# of each repository, and says for which distribution a module was made, not what it needs
PLATFORM = "platform"


@dataclass(frozen=True)
class Module:
    """One build of a stream. `requires` are alternatives: modules with the streams that will do, none for any.

    `packages` are written `name-epoch:version-release.arch`; `text` is the whole document.
    """

    name: str
    stream: str
    version: int
    context: str
    requires: tuple[Mapping[str, tuple[str, ...]], ...]
    packages: frozenset[str]
    text: str = field(repr=False)

    @property
    def spoken(self) -> str:
        """Return name and stream as people write them."""
        return f"{self.name}:{self.stream}"

    def fits(self, enabled: Mapping[str, str]) -> bool:
        """Say whether the enabled streams are those that one of its alternatives asks for."""
        return not self.requires or any(
            all(name in enabled and _accepts(streams, enabled[name]) for name, streams in needs.items())
            for needs in self.requires
        )


def parse(text: str, where: str) -> list[Module]:
    """Return the modules in a repository's `modules.yaml`; raises IntegrityError where it is malformed."""
    found = []
    for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
        try:
            # without types, as a stream 1.10 is not the number 1.1
            content = yaml.load(document, yaml.CBaseLoader)  # noqa: S506 - makes nothing but text, lists and tables
            if isinstance(content, dict) and content.get("document") == "modulemd":
                found.append(_module(content["data"], document))
        except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise IntegrityError(
                f"is no list of modules: {error!r}", where=where, hint="ask the keeper of the package source"
            ) from error
    return found


def enable(modules: Collection[Module], wanted: Iterable[tuple[str, str]]) -> list[Module]:
    """Return the builds that the streams bring, with those of the modules that they require.

    `wanted` are pairs of a stream and the place that asks for it. A required module is enabled where one stream alone
    will do. Raises InputError for streams that do not exist, exclude each other, or ask for a choice.
    """
    enabled: dict[str, str] = {}
    places: dict[str, str] = {}
    queue = list(wanted)
    while queue:
        spoken, where = queue.pop(0)
        name, _, stream = spoken.partition(":")
        builds = [module for module in modules if module.spoken == spoken]
        if not builds:
            offered = sorted({module.spoken for module in modules if module.name == name})
            raise InputError(
                f"there is no module {spoken}",
                where=where,
                hint=f"use one of: {', '.join(offered)}" if offered else "add a source that has it",
            )
        if enabled.setdefault(name, stream) != stream:
            raise InputError(
                f"the module {name} is wanted in two streams, {enabled[name]} and {stream} ({places[name]})",
                where=where,
                hint="give the target one stream of each module",
            )
        if places.setdefault(name, where) == where:
            queue += _required(modules, builds, [*enabled, *(n.partition(":")[0] for n, _ in queue)], where)
    return [_best(modules, name, stream, enabled, places[name]) for name, stream in sorted(enabled.items())]


def hidden(modules: Collection[Module], active: Collection[Module]) -> set[str]:
    """Return the packages, as modules write them, that belong to modules and to none of the active ones."""
    return {package for module in modules for package in module.packages} - visible(active)


def visible(active: Collection[Module]) -> set[str]:
    """Return the packages of the active modules."""
    return {package for module in active for package in module.packages}


def shadowed(active: Collection[Module]) -> set[str]:
    """Return the names that only the active modules may provide."""
    binary = (package for package in visible(active) if not package.endswith((".src", ".nosrc")))
    return {package.rsplit("-", 2)[0] for package in binary}


def owners(modules: Iterable[Module], package: str) -> list[str]:
    """Return the streams that a package belongs to."""
    return sorted({module.spoken for module in modules if package in module.packages})


def _module(data: Mapping[str, Any], text: str) -> Module:
    return Module(
        name=data["name"],
        stream=data["stream"],
        version=int(data["version"]),
        context=data.get("context", ""),
        requires=tuple(
            {name: tuple(streams or ()) for name, streams in (needs.get("requires") or {}).items() if name != PLATFORM}
            for needs in data.get("dependencies") or ()
        ),
        packages=frozenset((data.get("artifacts") or {}).get("rpms") or ()),
        text=text.strip("\n") + "\n",
    )


def _required(
    modules: Collection[Module], builds: list[Module], chosen: Collection[str], where: str
) -> list[tuple[str, str]]:
    """Return the streams that must come along; raises InputError where there are several that would do."""
    alternatives = [needs for module in builds for needs in module.requires]
    names = set.intersection(*(set(needs) for needs in alternatives)) if alternatives else set()
    found = []
    for name in sorted(names.difference(chosen)):
        fitting = {
            module.spoken
            for needs in alternatives
            for module in modules
            if module.name == name and _accepts(needs[name], module.stream)
        }
        if len(fitting) != 1:
            choice = ", ".join(sorted(fitting))
            raise InputError(
                f"the module {builds[0].spoken} needs a stream of the module {name}",
                where=where,
                hint=f"add one of these to `modules`: {choice}" if fitting else "add a source that has it",
            )
        found.append((fitting.pop(), where))
    return found


def _best(modules: Iterable[Module], name: str, stream: str, enabled: Mapping[str, str], where: str) -> Module:
    """Return the newest build of a stream whose needs the enabled streams meet."""
    builds = [module for module in modules if (module.name, module.stream) == (name, stream)]
    fitting = [module for module in builds if module.fits(enabled)]
    if not fitting:
        needs = " or ".join(
            ", ".join(f"{other}:{'|'.join(streams) or '*'}" for other, streams in need.items())
            for module in builds
            for need in module.requires
        )
        raise InputError(
            f"the module {name}:{stream} does not go with the other streams; it needs {needs}",
            where=where,
            hint="correct the streams under `modules`",
        )
    return max(fitting, key=lambda module: (module.version, module.context))


def _accepts(streams: Collection[str], stream: str) -> bool:
    """Say whether a stream is among those that will do; a minus sign excludes one."""
    refused = {word[1:] for word in streams if word.startswith("-")}
    wanted = {word for word in streams if not word.startswith("-")}
    return stream not in refused and (not wanted or stream in wanted)


def served(parts: Iterable[RpmPart]) -> str:
    """Return the text of `modules.yaml`: the chosen streams, each made the default of its module.

    Parts that are keys are passed over. Raises ConflictError where one module is wanted in two streams.
    """
    texts: list[str] = []
    streams: dict[str, ModuleMetadata] = {}
    for part in parts:
        if not isinstance(part.metadata, ModuleMetadata):
            continue
        texts.append(part.metadata.text)
        first = streams.setdefault(part.name, part.metadata)
        if first.stream != part.metadata.stream:
            raise ConflictError(
                f"two streams of one module are wanted: {first.stream} and {part.metadata.stream}",
                where=part.name,
                hint="publish bundles that take the same stream",
            )
    defaults = [
        {
            "document": "modulemd-defaults",
            "version": 1,
            "data": {"module": name.removeprefix("modules/"), "stream": chosen.stream},
        }
        for name, chosen in streams.items()
    ]
    return "".join(f"---\n{document}" for document in sorted([*texts, *map(yaml.safe_dump, defaults)]))
