"""References of images, and what they mean to a container engine. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from common.errors import InputError
from common.sentence import Sentence, Several

# the registry of images that name none
HUB = "docker.io"
_HUB = re.compile(rf"^(index\.)?{re.escape(HUB)}/(library/)?|^library/")
_ID = re.compile(r"[0-9a-f]+|sha(256|384|512):.*")


def full(reference: str) -> str:
    """Return a reference without what may be left out, and with the tag that is meant where none is written."""
    repository, tag, digest = _parts(reference)
    return f"{repository}@{digest}" if digest else f"{repository}:{tag}"


def repository_of(reference: str) -> str:
    """Return the repository of a reference, without what may be left out."""
    return _parts(reference)[0]


def qualified(repository: str) -> str:
    """Return a repository with all that may be left out: the registry, and the folder of the hub's own images."""
    short = _HUB.sub("", repository)
    if short == repository and registry_of(repository):
        return repository
    return f"{HUB}/{short}" if "/" in short else f"{HUB}/library/{short}"


def registry_of(reference: str) -> str:
    """Return the registry that a reference names, as HOST or HOST:PORT; empty where it names none."""
    host, slash, _ = reference.partition("/")
    named = slash and (re.search("[.:]", host) or host == "localhost" or host != host.lower())
    return host if named else ""


def means(wanted: str, reference: str, digest: str) -> bool:
    """Return whether an engine takes `wanted` for the image of a reference, whose digest nodes have told, if any."""
    if full(wanted) == full(reference):
        return True
    repository, _, pinned = _parts(wanted)
    return bool(pinned) and pinned == digest.rpartition("@")[2] and repository == repository_of(reference)


def check(reference: str, where: str = "image") -> None:
    """Refuse what an engine could read as the id of an image, or as the beginning of one; raises InputError.

    Whose an image is stands in its name. By an id, or one digit of it, everybody would run everybody's.
    """
    if _ID.fullmatch(reference):
        raise InputError(
            f"{reference} could be the id of an image, and images go by their names",
            where=where,
            hint="write its name and tag, such as tensorflow:2.15",
        )


def check_registry(reference: str, registries: Collection[str], where: str = "image") -> None:
    """Refuse to pull an image from elsewhere than one of some registries; raises InputError."""
    registry = registry_of(reference)
    if registry not in registries:
        raise InputError(
            Sentence("this site pulls no images from {registry}", registry=registry)
            if registry
            else Sentence("this site knows no registry for {reference}", reference=reference),
            where=where,
            hint=Sentence("name one of its registries: {names}", names=Several(registries))
            if registries
            else Sentence("name one of its registries: it has none"),
        )


def _parts(reference: str) -> tuple[str, str, str]:
    """Return repository, tag and digest, this empty where none is written."""
    name, _, digest = _HUB.sub("", reference).partition("@")
    repository, colon, tag = name.rpartition(":")
    return (repository, tag, digest) if colon and "/" not in tag else (name, "latest", digest)
