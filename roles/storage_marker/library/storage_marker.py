#!/usr/bin/python3
"""The marker at the root of a storage: a file with the storage's id, made once, by which every node knows it."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: storage_marker
short_description: Read the marker of a storage, and make it where the storage has none yet
description: Fails where the storage is not mounted, and where it is another one than it was.
author: Penstock
options:
  name: {type: str, required: true, description: Name of the storage.}
  path: {type: path, required: true, description: Its root on this node.}
  mounted: {type: bool, required: true, description: Whether the root has to be mounted.}
  id: {type: str, default: "", description: What stands in the marker as far as the site knows.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "path": {"type": "path", "required": True},
    "mounted": {"type": "bool", "required": True},
    "id": {"type": "str", "default": ""},
}
MARKER = ".penstock-storage"


def main() -> None:
    """Return the id as `id`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    marker, expected = Path(options["path"]) / MARKER, options["id"]
    wrong = fault(options["name"], marker, expected, is_mounted=not options["mounted"] or is_mounted(marker.parent))
    if wrong:
        module.fail_json(msg=wrong)
    is_new = not marker.is_file()
    if is_new and not module.check_mode:
        make(marker)
    module.exit_json(changed=is_new, id=marker.read_text().strip() if marker.is_file() else "")


def fault(name: str, marker: Path, expected: str, *, is_mounted: bool) -> str:
    """Return why nobody must take the folder of a marker for the storage, and the hint; empty where it is the one."""
    found = marker.read_text().strip() if marker.is_file() else ""
    if found and found == (expected or found):
        return ""
    where = f"the storage {name} is not at {marker.parent} of this node"
    if not is_mounted:
        return f"{where}: nothing is mounted there. Hint: mount it, and deploy again."
    if not expected:
        return ""
    seen = f"what is there has the id {found}" if found else f"there is no {marker.name}"
    return (
        f"{where}: {seen}, and the site knows it by {expected}. Hint: mount the right one; where it was replaced for"
        f" good, remove the file storages/{name} of the site's state on the controller, and deploy again."
    )


def is_mounted(root: Path) -> bool:
    """Return whether a root is no folder of the node's own disk."""
    return root.is_dir() and root.stat().st_dev != Path("/").stat().st_dev


def make(marker: Path) -> None:
    """Write a marker with a new id as a whole, unless another node has been faster."""
    descriptor, name = tempfile.mkstemp(dir=marker.parent, prefix=marker.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{uuid.uuid4()}\n")
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
        os.link(name, marker)
    except FileExistsError:
        pass
    finally:
        Path(name).unlink()


if __name__ == "__main__":
    main()
