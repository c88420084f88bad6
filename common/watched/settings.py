"""Settings that systemd hands to a service; no other module of this package reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping


def signs(environ: Mapping[str, str] = os.environ) -> tuple[str, float]:
    """Return where systemd takes signs of life, and within how many seconds; empty where it asks for none."""
    return environ.get("NOTIFY_SOCKET", ""), int(environ.get("WATCHDOG_USEC", "0")) / 1e6
