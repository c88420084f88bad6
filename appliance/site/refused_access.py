"""Causes for which a node cannot be worked on, of what ssh, sudo and Ansible say, each with a line to mend it.

Pure: what comes out depends on nothing but what goes in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ALLOW = "run as root on {node}: `echo '{user} ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/penstock`"
CAUSES = (
    (
        r"sudo: (command )?not found",
        "there is no sudo on {node}, and {user} is not root",
        "run as root on {node}: `apt-get install sudo`, or let `ssh.user` be root",
    ),
    (r"Missing sudo password|a password is required", "sudo on {node} asks {user} for a password", ALLOW),
    (r"not in the sudoers file|not allowed to (run|execute)", "sudo on {node} allows {user} nothing", ALLOW),
    (
        r"(?i)(no such identity|identity file) \S+ not accessible|no such identity: ",
        "the key {key} is not on this machine",
        "correct `ssh.private_key`, or make one: `ssh-keygen -t ed25519 -f {key}`",
    ),
    (
        r"Permission denied \(",
        "{node} refuses the SSH key of {user}",
        "run `ssh-copy-id {options}{user}@{address}`, or correct `ssh.user` and `ssh.private_key`",
    ),
    (
        r"HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "the SSH host key of {node} is not the one of the first contact",
        "if the node was installed anew, run `ssh-keygen -f {known_hosts} -R {known}`; if not, somebody stands between",
    ),
    (
        r"module interpreter '\S+' was not found|python3: not found",
        "there is no Python on {node}",
        "run as root on {node}: `apt-get install python3`",
    ),
)


def explained(said: str, node: str, variables: Mapping[str, Any], known_hosts: str) -> tuple[str, str] | None:
    """Return why a node cannot be worked on, and the hint; None where that is not what was said.

    `variables` are those of the node in the inventory, which say how it is reached.
    """
    found = next(((reason, hint) for pattern, reason, hint in CAUSES if re.search(pattern, said)), None)
    if found is None:
        return None
    address, port = variables.get("ansible_host", node), variables.get("ansible_port", 22)
    key = variables.get("ansible_ssh_private_key_file")
    words = {
        "node": node,
        "user": variables.get("ansible_user", "root"),
        "address": address,
        "key": key or "of the calling user",
        "known_hosts": known_hosts,
        "known": address if port == 22 else f"'[{address}]:{port}'",
        "options": (f"-i {key} " if key else "") + (f"-p {port} " if port != 22 else ""),
    }
    return found[0].format(**words), found[1].format(**words)
