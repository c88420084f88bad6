"""Judgement of a machine by itself: its services, packet rules, mounts, and clock. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.site.model import Node, Site
from appliance.site.seen import Seen
from common.checks import Check, CheckState

OFFSET_S = 1.0
"""How far a node's clock may be from the site's, in seconds."""

STARTED_AT_BOOT = ("enabled", "static", "indirect", "alias", "generated")
"""What systemd says of units that start with the machine, or with another one that does."""


def services(seen: Seen) -> Iterator[Check]:
    """Judge whether services run."""
    for unit, state in sorted(seen["services"].items()):
        hint = f"look at `journalctl -u {unit}`"
        yield Check.of("service", f"{unit} runs", ok=state == "active", evidence=state, hint=hint, subject=unit)


def enabled(node: Node, seen: Seen) -> Iterator[Check]:
    """Judge whether services come back after a restart of the machine."""
    for unit, state in sorted(seen["enabled"].items()):
        yield Check.of(
            *("service.enabled", f"{unit} starts with the machine"),
            ok=state in STARTED_AT_BOOT,
            evidence=state,
            hint=f"run `systemctl enable {unit}` on {node.name}",
            subject=unit,
        )


def limits(seen: Seen) -> Iterator[Check]:
    """Judge whether the kernel limits the connections of each address."""
    for chain, limit in seen["limits"].items():
        said = limit["detail"]
        yield Check.of("limits", f"connections are limited by {chain}", ok=limit["ok"], evidence=said, subject=chain)


def firewall(node: Node, seen: Seen) -> Iterator[Check]:
    """Judge whether the node's firewall refuses what it does not let in."""
    found = seen["firewall"]
    hint = f"run `systemctl restart penstock-firewall` on {node.name}, and look who takes tables of others away"
    yield Check.of("firewall", "other ports are closed", ok=found["ok"], evidence=found["detail"], hint=hint)


def confinement(node: Node, seen: Seen) -> Iterator[Check]:
    """Judge who limits sessions in the kernel; what Docker says of itself is what their containers get."""
    docker, modules = seen["docker"], seen["security_modules"]
    if docker is None:
        return
    told = (each.removeprefix("name=").partition(",") for each in docker["security"])
    limits = {name: rest for name, _, rest in told}
    filtered = "seccomp" in limits and "profile=unconfined" not in limits["seccomp"]
    # a container's Docker leaves the profiles to the machine
    without = modules["apparmor"] and "apparmor" not in limits and not modules["container"]
    enforcing = modules["selinux"] == "enforcing"
    has = [name for name in ("AppArmor", "SELinux") if name.lower() in limits] + ["seccomp"] * filtered
    said = f"containers are limited by {' and '.join(has) or 'nothing'}"
    said += "; AppArmor is on in the kernel, and Docker does not use it" if without else ""
    said += "; SELinux enforces its policy" if enforcing else ""
    hints = [] if filtered else ["take `seccomp` out of what Docker is told"]
    hints += ["install the package `apparmor`"] if without else []
    hints += ["look at `ausearch -m avc` for what SELinux denies"] if enforcing else []
    state = CheckState.FAIL if not filtered else CheckState.WARN if hints else CheckState.OK
    hint = f"{', '.join(hints)}, and run `systemctl restart docker` on {node.name}" if hints else ""
    yield Check("confinement", "sessions are limited by the kernel", state, said, hint)


def storages(seen: Seen) -> Iterator[Check]:
    """Judge whether the site's storages are there."""
    for name, storage in seen["storages"].items():
        said = storage["detail"]
        hint = "mount it, then look again"
        yield Check.of("storage", f"storage {name}", ok=storage["ok"], evidence=said, hint=hint, subject=name)


def mounts(seen: Seen) -> Iterator[Check]:
    """Judge whether folders of storage nodes are mounted, and bring no rights or devices along."""
    for path, options in seen["mounts"].items():
        missing = [name for name in ("nosuid", "nodev") if name not in (options or ())]
        said = "not mounted" if options is None else f"mounted without {', '.join(missing)}" if missing else "mounted"
        good = options is not None and not missing
        yield Check.of("mount", f"{path} is mounted", ok=good, evidence=said, subject=path)


def time(site: Site, node: Node, seen: Seen) -> Iterator[Check]:
    """Judge whether a node follows the clock of the site, which the master alone is itself, where it has no servers."""
    told, name = seen["time"], "clock follows the site"
    hint = (
        f"look at `chronyc sources` and /etc/chrony/chrony.conf on {node.name}; `penstock site deploy` writes it anew"
    )
    if told is None:
        hint = f"look at `journalctl -u chrony` on {node.name}"
        yield Check.of("time", name, ok=False, evidence="chrony does not answer", hint=hint)
        return
    is_own = told["local"] or told["reference"] == str(node.address)
    reference = "its own clock" if is_own else told["reference"]
    said = f"{told['offset_s'] * 1000:+.3f} ms to {reference}"
    if not told["synchronised"]:
        said += ", not synchronised"
    astray = is_own and (node != site.master or bool(site.time.servers))
    if astray:
        said += f", and the site's is that of {', '.join(map(str, site.time.servers)) or site.master.name}"
    near = told["synchronised"] and abs(told["offset_s"]) < OFFSET_S
    yield Check.of("time", name, ok=near and not astray, evidence=said, hint=hint)
