"""The files of manifests and locks: read, written, held against each other."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from common import files
from common.errors import ConflictError, InputError
from common.yaml_document import check, parse
from reservoir.artifacts.python import pyproject
from reservoir.contents.lock import Lock
from reservoir.download.cache import space_on
from reservoir.manifest import reading
from reservoir.manifest.model import Manifest


def read_manifest(path: Path) -> Manifest:
    """Return the manifest at `path`; raises InputError that names line, reason and hint of every problem."""
    return reading.load(_text(path, "write a manifest"), str(path))


def read_lock(path: Path) -> Lock:
    """Return the lock at `path`; raises InputError where it is missing or damaged."""
    text = _text(path, "make it with `penstock reservoir lock`")
    try:
        return Lock.model_validate_json(text)
    except ValidationError:
        # slow, but knows the lines
        return check(Lock, parse(text, str(path)))


def write_lock(lock: Lock, path: Path) -> bool:
    """Write the lock beside and rename it; return whether the file changed."""
    text = json.dumps(lock.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"
    if path.is_file() and path.read_text() == text:
        return False
    with space_on(path.parent):
        files.write(path, text)
    return True


def require_match(lock: Lock, path: Path, lock_path: Path) -> Manifest:
    """Return the manifest at `path`; raises ConflictError where the lock was made from another one."""
    wanted = read_manifest(path)
    hint = f"run `penstock reservoir lock {path}`"
    if lock.manifest != wanted.digest():
        raise ConflictError("the lock does not match the manifest", where=str(lock_path), hint=hint)
    for project in lock.projects:
        if pyproject.dependencies(path.parent / project.path, project.extras) != project.dependencies:
            raise ConflictError(
                f"the lock does not match what the project {project.name} requires now", where=str(lock_path), hint=hint
            )
    return wanted


def matches(lock_path: Path, path: Path) -> bool:
    """Say whether there is a lock that belongs to the manifest as it is now."""
    if not lock_path.is_file():
        return False
    try:
        require_match(read_lock(lock_path), path, lock_path)
    except (ConflictError, InputError):
        return False
    return True


def _text(path: Path, hint: str) -> str:
    try:
        return path.read_text()
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="correct the path") from error
