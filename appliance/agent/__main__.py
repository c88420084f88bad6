"""Start the agent: `python -m appliance.agent`; with `settle` leave every container the window of its own share."""

from __future__ import annotations

import sys
import time

from appliance.agent import server, settings
from appliance.agent.shares.settle import settle
from common.errors import PenstockError

try:
    if sys.argv[1:] == ["settle"]:
        settle(settings.load().gpu_folder, time.monotonic_ns())
    else:
        server.serve(settings.load())
except PenstockError as error:
    sys.exit("\n".join(f"error: {problem}" for problem in error.problems))
