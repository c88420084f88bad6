"""Files that a person names on the command line."""

from __future__ import annotations

from pathlib import Path

from appliance.site.model import Site
from appliance.site.site_file import load
from common import files
from common.errors import InputError
from common.yaml_document import parse


def read_site(path: Path) -> Site:
    """Return the site of a site file; raises InputError where it cannot be read or is not valid."""
    document = parse(read_text(path), str(path))
    site = load(document)
    if site.overrides or any(node.overrides for node in site.nodes):
        # who has none does not wait for Ansible
        from appliance.site import overrides, settings

        overrides.require(site, document, settings.ansible_root())
    return site


def read_text(path: Path) -> str:
    """Return the text of a file; raises InputError that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), hint="give a file that exists"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError("is not text in UTF-8", where=str(path), hint="save it as UTF-8") from error


def replace_text(path: Path, before: str, text: str) -> None:
    """Write a file that had another text before; its rights stay.

    Raises InputError where somebody has changed it meanwhile.
    """
    if read_text(path) != before:
        raise InputError("was changed meanwhile", where=str(path), hint="run the command again")
    files.write(path, text, path.stat().st_mode & 0o777)
