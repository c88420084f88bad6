#!/usr/bin/python3
"""Small files of root, written by one task: a module run for each takes a node longer than all its work."""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: small_files
short_description: Write small files
description: Gives files their contents, in one step each; folders that are absent are made, and open to all.
author: Penstock
options:
  files: {type: dict, required: true, description: Contents by path.}
  mode: {type: str, default: "0644", description: Mode of the files, in octal.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    # nobody's log shows what stands in them
    "files": {"type": "dict", "required": True, "no_log": True},
    "mode": {"type": "str", "default": "0644"},
}


def main() -> None:
    """Write what is not as it should be; a dry run says only whether there is such a file."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    mode = int(module.params["mode"], 8)
    if wrong := [path for path, text in module.params["files"].items() if not isinstance(text, (str, type(None)))]:
        module.fail_json(msg=f"the contents of {', '.join(wrong)} are no text; put them in quotes, or make them JSON")
    # what an empty template comes to is nothing
    files = {Path(path): (text or "").encode() for path, text in module.params["files"].items()}
    wanting = [path for path, content in files.items() if not stands(path, content, mode)]
    # what not everybody may read is nobody's to see in a log either
    asked = module._diff and mode & stat.S_IROTH
    shown = [path for path in wanting if asked and is_open(path)]
    diff = [{"prepared": difference(path, files[path])} for path in shown]
    for path in () if module.check_mode else wanting:
        try:
            write(path, files[path], mode)
        except OSError as error:
            module.fail_json(msg=f"{path} cannot be written: {error.strerror}")
    told = {"diff": diff} if diff else {}
    module.exit_json(changed=bool(wanting), penstock_written=[str(path) for path in wanting], **told)


def is_open(path: Path) -> bool:
    """Return whether everybody may read a file, or there is none."""
    try:
        found = path.lstat()
    except OSError:
        return True
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IROTH)


def difference(path: Path, content: bytes) -> str:
    """Return how a file differs from what it is to be, as lines of a unified difference."""
    present = path.read_bytes() if path.is_file() else b""
    before, after = (text.decode(errors="replace").splitlines() for text in (present, content))
    return "\n".join(difflib.unified_diff(before, after, str(path), str(path), lineterm=""))


def stands(path: Path, content: bytes, mode: int) -> bool:
    """Return whether a file of root has this content and mode already; a link is none."""
    try:
        found = path.lstat()
    except OSError:
        return False
    owned = (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())
    return found.st_mode == stat.S_IFREG | mode and owned and path.read_bytes() == content


def write(path: Path, content: bytes, mode: int) -> None:
    """Write a file of root in one step, and the folders above it where they are absent."""
    make(path.parent)
    beside = path.with_name(f".{path.name}.unfinished")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        os.fchown(file.fileno(), os.geteuid(), os.getegid())
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def make(folder: Path) -> None:
    """Make a folder and those above it; one that is there stays as it is."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


if __name__ == "__main__":
    main()
