"""Start the agent: `python -m appliance.agent`."""

from __future__ import annotations

import sys

from appliance.agent import server, settings
from reservoir.errors import PenstockError

try:
    server.serve(settings.load())
except PenstockError as error:
    sys.exit("\n".join(f"error: {problem}" for problem in error.problems))
