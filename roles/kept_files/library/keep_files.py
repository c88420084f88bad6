#!/usr/bin/python3
"""Copies of files that were on a node before Penstock wrote, moved or removed them: the first of each, and once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: keep_files
short_description: Keep what was on a node before Penstock
description: Copies files that are not Penstock's into a folder, below their own paths; a copy is never written again.
author: Penstock
options:
  paths: {type: list, elements: str, required: true, description: "Files that will be changed, * for parts of names."}
  folder: {type: path, required: true, description: Folder of the copies.}
  installed: {type: path, required: true, description: File that a node has which an earlier release installed.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "paths": {"type": "list", "elements": "str", "required": True},
    "folder": {"type": "path", "required": True},
    "installed": {"type": "path", "required": True},
}
RECORD = "record.json"
KEPT, ABSENT, OURS = "kept", "absent", "ours"


def main() -> None:
    """Return the files that were kept now as `penstock_kept`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    asked = module.params
    record = Path(asked["folder"]) / RECORD
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    ours = not record.exists() and Path(asked["installed"]).exists()
    found = {path: state(Path(path), exact, ours) for path, exact in expanded(asked["paths"]) if path not in known}
    kept = sorted(path for path, what in found.items() if what == KEPT)
    if found and not module.check_mode:
        for path in kept:
            keep(Path(path), Path(asked["folder"]))
        write(record, json.dumps(known | found, indent=1, sort_keys=True) + "\n")
    module.exit_json(changed=bool(found), penstock_kept=kept)


def expanded(patterns: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the paths that some patterns stand for, and whether a path was named as it is; ours are known by name."""
    for pattern in patterns:
        if "*" not in pattern:
            yield pattern, True
            continue
        matching = sorted(Path(pattern).parent.glob(Path(pattern).name))
        yield from ((str(path), False) for path in matching if not path.name.startswith("penstock"))


def state(path: Path, exact: bool, ours: bool) -> str:
    """Return what there is at a path that was never looked at; what an earlier release wrote is ours."""
    if not os.path.lexists(path):
        return ABSENT
    return OURS if exact and ours else KEPT


def keep(path: Path, folder: Path) -> None:
    """Copy a file with its owner and mode, or a link as it is; a copy that is there already stays."""
    copy = folder / path.relative_to("/")
    if os.path.lexists(copy):
        return
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    beside = copy.with_name(f".{copy.name}.unfinished")
    beside.unlink(missing_ok=True)
    shutil.copy2(path, beside, follow_symlinks=False)
    owner = path.lstat()
    os.chown(beside, owner.st_uid, owner.st_gid, follow_symlinks=False)
    os.sync()
    beside.rename(copy)


def write(path: Path, text: str) -> None:
    """Write a file in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.unfinished")
    beside.write_text(text)
    os.sync()
    beside.rename(path)


if __name__ == "__main__":
    main()
