"""Checks of what Slurm needs to lend places: munge, its controllers, its accounting and its nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from common.checks import Check, CheckState

_CONTROLLER = re.compile(r"Slurmctld\((?P<part>\w+)\) at (?P<host>\S+) is (?P<state>\w+)")
_SOCKET = re.compile(r"^\s*AuthInfo\s*=.*?\bsocket=(?P<path>[^,\s]+)", re.MULTILINE | re.IGNORECASE)
_ACCOUNTING = re.compile(r"^AccountingStorageType\s*=\s*accounting_storage/slurmdbd\s*$", re.MULTILINE)
UP = "UP"


def munge_socket(conf: str) -> str:
    """Return the socket of munge that a configuration of Slurm names; empty where it is munge's own."""
    found = _SOCKET.search(conf)
    return found["path"] if found else ""


def has_accounting_daemon(shown: str) -> bool:
    """Return whether the controller says, by `scontrol show config`, that slurmdbd keeps its accounting."""
    return bool(_ACCOUNTING.search(shown))


def munge(problem: str) -> Check:
    """Judge whether munge seals what nodes of Slurm say to each other; without it no command works."""
    hint = "look at `systemctl status munge` on the master; its key is the same on all nodes of Slurm"
    return Check.of("munge", "munge answers", ok=not problem, evidence=problem or "it answers", hint=hint)


def controllers(said: str) -> Iterator[Check]:
    """Judge the controllers by `scontrol ping`; where another one works, one that is down is a warning."""
    found = {match["host"]: match["state"] for match in _CONTROLLER.finditer(said)}
    name = "Slurm's controller answers"
    if not found:
        hint = "look at `systemctl status slurmctld` on the master and at /etc/slurm/slurm.conf"
        yield Check.of("slurmctld", name, ok=False, evidence=" ".join(said.split()) or "nobody answers", hint=hint)
    for host, state in found.items():
        hint = f"look at `systemctl status slurmctld` on {host}, and at its log; what runs goes on, nothing new starts"
        if state != UP and UP in found.values():
            yield Check("slurmctld", name, CheckState.WARN, f"{host} is {state}, and another one works", hint, host)
        else:
            yield Check.of("slurmctld", name, ok=state == UP, evidence=f"it is {state}", hint=hint, subject=host)


def accounting(problem: str) -> Check:
    """Judge whether slurmdbd answers; what it is not told is kept by the controller, until that is full."""
    hint = "look at `systemctl status slurmdbd`, its database, and `sacctmgr show cluster`"
    return Check.of(
        "slurmdbd", "Slurm's accounting answers", ok=not problem, evidence=problem or "it answers", hint=hint
    )


def nodes(withheld: Mapping[str, str]) -> Iterator[Check]:
    """Judge nodes by why they lend nothing, empty where they do."""
    for node, why in sorted(withheld.items()):
        hint = (
            f"look at `scontrol show node {node}`, and on it at `systemctl status slurmd munge`; one that does not"
            f" respond may have another key: `munge --no-input | ssh {node} unmunge` on the master tells;"
            f" `scontrol update NodeName={node} State=RESUME` lets one that was closed take jobs again"
        )
        yield Check.of("slurmd", "Slurm lends the node", ok=not why, evidence=why or "it does", hint=hint, subject=node)
