"""The call before runc, with its arguments, to create a container that has a sandbox."""

from __future__ import annotations

import sys

from appliance.agent.sandbox.oci_runtime import fail, prepare

try:
    prepare(sys.argv[1:])
except (OSError, ValueError, KeyError, TypeError) as error:
    reason = f"the sandbox cannot be held: {error}"
    fail(sys.argv[1:], reason)
    sys.exit(reason)
