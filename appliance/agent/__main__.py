"""The agent's start, `python -m appliance.agent`.

With `own-windows` it only leaves every container the window of its own share.
"""

from __future__ import annotations

import sys
import time

from appliance.agent import server, settings
from appliance.agent.shares.own_windows import give_own_windows
from common.errors import PenstockError

try:
    match sys.argv[1:]:
        case []:
            server.serve(settings.load())
        case ["own-windows"]:
            give_own_windows(settings.load().gpu_folder, time.monotonic_ns())
        case _:
            # never a second agent, as where systemd goes by the unit of another release
            sys.exit("usage: python -m appliance.agent [own-windows]")
except PenstockError as error:
    sys.exit("\n".join(f"error: {problem}" for problem in error.problems))
