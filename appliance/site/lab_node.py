"""Nodes of a lab from inside, by `docker exec`: waited for, proved closed, given SSH keys."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from appliance.site.inventory import STATE
from common import process
from common.errors import ProcessError, UnavailableError

BOOT_S = 300.0
POLL_S = 0.3

ROUTES = """
import errno, json, socket
found = {"routes": [], "connect": "", "resolved": False}
for line in open("/proc/net/route").read().splitlines()[1:]:
    if line.split()[1] == "00000000":
        found["routes"].append("IPv4 by " + line.split()[0])
try:
    for line in open("/proc/net/ipv6_route").read().splitlines():
        words = line.split()
        if words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
            found["routes"].append("IPv6 by " + words[9])
except FileNotFoundError:
    pass
try:
    socket.create_connection(("192.0.2.1", 443), 2).close()
    found["connect"] = "connected"
except OSError as error:
    found["connect"] = errno.errorcode.get(error.errno, str(error))
print(json.dumps(found))
"""
"""Prints the default routes of a node and what comes of a connection to an address that only documents use."""


def run(container: str, *command: str, stdin: str | None = None) -> str:
    """Run a command in a node and return what it printed."""
    interactive = ["--interactive"] if stdin is not None else []
    return process.run(["docker", "exec", *interactive, container, *command], stdin=stdin or "")


def write(container: str, path: str, text: str, mode: str = "0644") -> None:
    """Write a file in a node, with the folders above it."""
    script = 'mkdir -p "$(dirname "$1")" && umask 077 && cat > "$1" && chmod "$2" "$1"'
    run(container, "sh", "-c", script, "sh", path, mode, stdin=text)


def wait_until_booted(container: str, deadline_s: float = BOOT_S) -> str:
    """Wait until systemd is up and sshd answers; returns systemd's own word for it, `running` or `degraded`."""
    end = time.monotonic() + deadline_s
    state = ssh = "unknown"
    while time.monotonic() < end:
        state, ssh = _word(container, "is-system-running"), _word(container, "is-active", "ssh.service")
        if state in ("running", "degraded") and ssh == "active":
            return state
        time.sleep(POLL_S)
    raise UnavailableError(
        f"it did not boot in {deadline_s:.0f} s: systemd is {state}, sshd is {ssh}",
        where=container,
        hint=f"see `docker logs {container}` and `docker exec {container} systemctl --failed`",
    )


def check_closed(container: str) -> None:
    """Raise UnavailableError where a node has a default route or does not refuse an outside address at once."""
    found = json.loads(run(container, "python3", "-c", ROUTES))
    if found["routes"] or found["connect"] != "ENETUNREACH":
        way = ", ".join(found["routes"]) or f"a connection to 192.0.2.1 gave {found['connect']}"
        raise UnavailableError(
            f"the node has a way out: {way}",
            where=container,
            hint="use a node image that removes its default route when it boots, as the one of the bundle does",
        )


def connect(nodes: Mapping[str, tuple[str, str]], reservoir: str, private_key: str | None) -> None:
    """Let root log in from the reservoir node to every node by key, and let it know their host keys.

    `nodes` maps the name of a node to its container and address.
    """
    home = nodes[reservoir][0]
    key = private_key or "/root/.ssh/id_ed25519"
    script = 'mkdir -p -m 700 "$(dirname "$1")" && { test -f "$1" || ssh-keygen -q -t ed25519 -N "" -f "$1"; }'
    run(home, "sh", "-c", script, "sh", key)
    public = run(home, "cat", f"{key}.pub")
    known: list[str] = []
    for name, (container, address) in nodes.items():
        _authorize(container, public)
        for line in run(container, "sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub").splitlines():
            kind, value = line.split()[:2]
            known.append(f"{name},{address} {kind} {value}")
    run(home, "mkdir", "-p", "-m", "700", STATE)
    for path in ("/root/.ssh/known_hosts", f"{STATE}/known_hosts"):
        write(home, path, "\n".join(known) + "\n", "0600")
    for name, (_, address) in nodes.items():
        if name != reservoir:
            run(home, "ssh", "-i", key, "-o", "BatchMode=yes", f"root@{address}", "true")


def _authorize(container: str, public: str) -> None:
    script = (
        "mkdir -p -m 700 /root/.ssh && cd /root/.ssh && key=$(cat) && "
        '{ grep -qxF "$key" authorized_keys 2>/dev/null || echo "$key" >> authorized_keys; }'
    )
    run(container, "sh", "-c", script, stdin=public)


def _word(container: str, *arguments: str) -> str:
    """Return the word that systemctl answers; it tells bad states by its exit code, too."""
    try:
        return run(container, "sh", "-c", 'systemctl "$@" 2>/dev/null || true', "sh", *arguments).strip() or "unknown"
    except ProcessError:
        return "unknown"
