"""Settings of the environment, and where things lie on this machine; no other module of this package reads it.

The node agent has settings of its own, in `appliance/agent/settings.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the calling user's settings, `~/.config/penstock` unless XDG_CONFIG_HOME says otherwise."""
    return Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config") / "penstock"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the calling user's state, `~/.local/state/penstock` unless XDG_STATE_HOME says otherwise."""
    return Path(environ.get("XDG_STATE_HOME") or _home(environ) / ".local" / "state") / "penstock"


def caller(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the user at the keyboard, who may have become root."""
    return environ.get("SUDO_USER") or environ.get("USER") or "root"


def search_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return the search path for programs, with those of this Python's own environment first."""
    return os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH") or os.defpath))


def sign_address(environ: Mapping[str, str] = os.environ) -> str:
    """Return where systemd takes signs of life of this process; empty where it asks for none."""
    return environ.get("NOTIFY_SOCKET", "") if environ.get("WATCHDOG_USEC") else ""


def ansible_root() -> Path:
    """Return the folder that holds playbooks, roles, inventory and ansible.cfg.

    An installed wheel carries it inside this package; in a checkout it is the root of the repository.
    """
    packed = PACKAGE / "ansible"
    return packed if packed.is_dir() else PACKAGE.parent


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "/root")
