"""Units of systemd that do what was ordered, and go on when who started them has gone."""

from __future__ import annotations

import time

from common import process

AGAIN_S = 2.0


def runs(unit: str) -> bool:
    """Return whether a unit of systemd is under way. That it is not is believed when it is said twice.

    A manager that is busy does not always answer, nor with what is so.
    """
    for question in range(2):
        if question:
            time.sleep(AGAIN_S)
        said = process.run(["systemctl", "is-active", unit], accepted=range(256)).strip()
        if said not in ("inactive", "failed", "unknown"):
            return True
    return False
