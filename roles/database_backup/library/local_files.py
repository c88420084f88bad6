#!/usr/bin/python3
"""Files that a node alone has: packed into an archive, and put back from it."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: local_files
short_description: Pack the files of a node that match patterns, or put them back
description: What matches a pattern and is there already when files are put back stays beside, with another ending.
author: Penstock
options:
  action: {type: str, required: true, choices: [pack, unpack], description: What to do.}
  archive: {type: path, required: true, description: The archive.}
  patterns: {type: list, elements: str, required: true, description: Which files; no others are put back.}
  named: {type: list, elements: str, default: [], description: Paths of files that are put back only where nothing is.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "action": {"type": "str", "required": True, "choices": ["pack", "unpack"]},
    "archive": {"type": "path", "required": True},
    "patterns": {"type": "list", "elements": "str", "required": True},
    "named": {"type": "list", "elements": "str", "default": []},
}
BEFORE = ".before"


def main() -> None:
    """Return how many files there were as `count`."""
    module = AnsibleModule(argument_spec=OPTIONS)
    archive, patterns, named = (module.params[name] for name in ("archive", "patterns", "named"))
    act = pack if module.params["action"] == "pack" else unpack
    try:
        count = act(Path(archive), patterns, named)
    except (OSError, tarfile.TarError) as error:
        module.fail_json(msg=f"{archive}: {error}. Hint: look at the disk of this node.")
    module.exit_json(changed=True, count=count)


def pack(archive: Path, patterns: Sequence[str], named: Sequence[str]) -> int:
    """Write an archive that root alone reads, and return how many files it has."""
    matching = [path for pattern in patterns for path in _matching(pattern)]
    found = [path for path in dict.fromkeys([*matching, *map(Path, named)]) if path.is_file()]
    with archive.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            for path in found:
                _add(packed, path)
    return len(found)


def unpack(archive: Path, patterns: Sequence[str], named: Sequence[str]) -> int:
    """Put the files back that match, and those that are named and gone; what matches and is there gets another name."""
    for pattern in patterns:
        for present in _matching(pattern):
            present.rename(f"{present}{BEFORE}")
    count = 0
    with tarfile.open(archive) as packed:
        for member in packed:
            target = Path("/", member.name)
            content = packed.extractfile(member)
            matches = any(fnmatch(str(target), each) for each in patterns)
            gone = str(target) in named and not os.path.lexists(target)
            if content is None or ".." in target.parts or not (matches or gone):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # others may write in its folder: nobody reads it before it is theirs, and no link of theirs is followed
            with content, open(target, "xb", opener=_hidden) as file:
                shutil.copyfileobj(content, file)
                _give(file.fileno(), member)
                os.fchmod(file.fileno(), member.mode & 0o777)
            count += 1
    return count


def _matching(pattern: str) -> list[Path]:
    return sorted(Path("/").glob(pattern.lstrip("/")))


def _add(packed: tarfile.TarFile, path: Path) -> None:
    """Add a file with the size that it has now; a log may grow meanwhile."""
    with path.open("rb") as file:
        packed.addfile(packed.gettarinfo(str(path), fileobj=file), file)


def _hidden(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _give(file: int, member: tarfile.TarInfo) -> None:
    """Give an open file to whom it belonged, and to root where there is no such user."""
    try:
        shutil.chown(file, member.uname, member.gname)
    except LookupError:
        os.fchown(file, 0, 0)


if __name__ == "__main__":
    main()
