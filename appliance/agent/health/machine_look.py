"""Looks at the machine of a node: its clock, units and certificates, and what the agent knows of it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from cryptography import x509

from appliance.agent.settings import Settings
from common import machine_checks, process
from common.checks import Check
from common.protocol import NodeInfo
from common.repairs import REPAIR_OF

FOLDERS = tuple(map(Path, ("/var/lib/penstock", "/var/log", "/tmp")))  # noqa: S108 - looked at
"""Whose disks are looked at, beside those of the system and of Docker."""
MODULES = Path("/sys/module")
WAIT = ("timeout", "--signal=KILL", "4")
"""Before a program that may hang."""
HUNG = (
    *("journalctl", "--quiet", "--since=-1h", "--output=cat", "--output-fields=UNIT"),
    *("_PID=1", "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c", "UNIT_RESULT=watchdog"),
)
"""Prints a unit for each time that systemd ended it because it gave no sign of life."""


def folders(docker_root: Path) -> tuple[Path, ...]:
    """Return the folders whose disks are looked at; the first one of a disk gives it its name."""
    return (Path("/"), docker_root, *FOLDERS)


def clock() -> Iterator[Check]:
    """Judge whether chrony keeps the time; how far it is from the API's, the API judges itself."""
    try:
        yield machine_checks.clock(process.run([*WAIT, "chronyc", "-c", "tracking"]))
    except Exception as error:
        yield machine_checks.clock("", _brief(error))


def units(names: Sequence[str]) -> Iterator[Check]:
    """Judge whether the units run that this node has of Penstock, and work; nothing without systemd."""
    if not names or not Path("/run/systemd/system").is_dir():
        return
    shown = process.run([*WAIT, "systemctl", "show", "--property=Id,LoadState,ActiveState,SubState", "--", *names])
    yield from machine_checks.units(shown, process.run([*WAIT, *HUNG]))


def modules(names: Sequence[str], folder: Path = MODULES) -> Iterator[Check]:
    """Judge whether the kernel has the modules that this node was set up with."""
    for name in names:
        loaded = (folder / name).is_dir()
        yield Check.of(
            *("module", "kernel module is loaded"),
            ok=loaded,
            evidence="it is loaded" if loaded else "it is not loaded",
            hint=f"look at `modprobe {name}` and at `journalctl -k`",
            subject=name,
        )


def certificates(settings: Settings) -> Iterator[Check]:
    """Judge how long the agent's certificate and the site's authority count."""
    bounds = settings.health_certificate_warn_days, settings.health_certificate_fail_days
    for identity, path in (("certificate", settings.cert), ("authority", settings.ca)):
        until = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        yield machine_checks.certificate(identity, str(path), until.timestamp(), *bounds)


def package_source(settings: Settings) -> Iterator[Check]:
    """Judge whether the reservoir serves Python packages to this node; nothing where it has no index."""
    if not (url := settings.package_index):
        return
    problem = ""
    try:
        context = ssl.create_default_context(cafile=str(settings.ca))
        answer = httpx.get(f"{url}penstock/", verify=context, timeout=4, trust_env=False)
        problem = f"{url} answers {answer.status_code}" if answer.is_server_error else ""
    except (httpx.HTTPError, OSError) as error:
        problem = f"{url}: {_brief(error)}"
    yield Check.of(
        *("packages", "package source answers"),
        ok=not problem,
        evidence=problem or f"{url} answers",
        hint="look at `systemctl status nginx penstock-index` on the reservoir",
    )


def known(info: NodeInfo, storages: Sequence[str]) -> Iterator[Check]:
    """Judge what the agent knows already: whether the container engine works, and each storage is there."""
    yield Check.of(
        *("engine", "containers can be started"),
        ok=not info.unready,
        evidence=info.unready or info.engine_version or "it answers",
        hint="look at `systemctl status docker`",
        repair=REPAIR_OF["engine"],
    )
    for name in storages:
        reason = info.missing_storages.get(name, "")
        hint = "mount it; the agent finds it by its marker"
        yield Check.of(
            "storage",
            "storage is mounted",
            ok=not reason,
            evidence=reason or "its marker is there",
            hint=hint,
            subject=name,
        )


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[-1].strip()
