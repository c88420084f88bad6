"""The filter of a container that is about to be created, narrowed by `python -m` this package and runc's arguments.

The container engine starts sandboxed sessions by a runtime of ours, a few lines of shell. It calls this with runc's own
arguments before runc, and only to create a container. What the sandbox is stands in the container's environment, in
which the agent writes it over whatever a user or an image says, and from which it is taken out here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.agent.sandbox import profile

VARIABLE = "PENSTOCK_SANDBOX"
NAME = "penstock"
"""Under which the container engine knows the runtime."""


def sandboxed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's configuration with its sandbox; raises ValueError where it cannot be held."""
    process, linux = config["process"], config["linux"]
    prefix = f"{VARIABLE}="
    # of a variable that stands there twice the container engine's last word counts
    written = [entry.removeprefix(prefix) for entry in process.get("env", []) if entry.startswith(prefix)]
    if not written:
        raise ValueError("the runtime is for sessions in a sandbox, and nothing says which this one has")
    if not linux.get("seccomp"):
        raise ValueError("the container engine gives this container no filter that a sandbox could narrow")
    confinement = json.loads(written[-1])
    filtered = profile.confine(linux["seccomp"], confinement["sandbox"]["rules"])
    filtered |= {"listenerPath": confinement["listener"], "listenerMetadata": written[-1]}
    environment = [entry for entry in process["env"] if not entry.startswith(prefix)]
    environment.append(f"{prefix}{confinement['sandbox']['name']}")
    return {
        **config,
        "process": {**process, "env": environment},
        "linux": {**linux, "seccomp": filtered},
    }


def prepare(arguments: Sequence[str]) -> None:
    """Narrow the filter of the container that runc is told to create; raises OSError and ValueError."""
    path = Path(_option(arguments, "--bundle", "-b") or ".") / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(sandboxed(config)))


def _option(arguments: Sequence[str], *names: str) -> str:
    for position, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        if option in names:
            return value or "".join(arguments[position + 1 : position + 2])
    return ""


def fail(arguments: Sequence[str], reason: str) -> None:
    """Write why in the file where the container engine looks for the runtime's reasons; raises OSError."""
    if log := _option(arguments, "--log"):
        with Path(log).open("a") as file:
            file.write(json.dumps({"level": "error", "msg": reason}) + "\n")
