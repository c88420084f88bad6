"""Files that containers see of their site: where pip finds its index, and the authority of its certificate. Pure.

Pip's settings are where pip looks first, so that everything else wins: the image's own, the user's, and variables.
"""

from __future__ import annotations

PIP = "/etc/xdg/pip/pip.conf"
AUTHORITY = "/etc/penstock/ca.crt"


def pip_settings(index: str) -> str:
    """Return what pip reads to take packages from an index of the site."""
    return f"[global]\nindex-url = {index}\ncert = {AUTHORITY}\ndisable-pip-version-check = true\n"
