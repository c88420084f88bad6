"""Settings of the agent, read from the environment; the only place of this package that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from common.errors import InputError, Problem
from common.gpu.kinds import Enforcement
from common.gpu.share import MAX_GPUS
from common.settings import environment
from common.settings.disk import DiskSettings
from common.settings.health import HealthSettings
from common.settings.images import ImageSettings
from common.settings.kubernetes import KubernetesSettings
from common.settings.logs import ContainerLogSettings
from common.settings.node_agent import GpuSettings, LocationSettings, NodeAgentSettings, SimulatedGpuSettings
from common.settings.options import FOLDERS, WORDS, Port
from common.settings.sessions import SessionSettings

PREFIX = "PENSTOCK_AGENT_"
FILE = "/etc/penstock/agent.env"
_OF_SYSTEMD = ("JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_HINTS = {
    "kubernetes_ca": "write the PEM file of the cluster's authority there",
    "kubernetes_token": "write the token of the agent's service account there",
}


class Settings(
    NodeAgentSettings,
    GpuSettings,
    SimulatedGpuSettings,
    LocationSettings,
    ContainerLogSettings,
    DiskSettings,
    KubernetesSettings,
    ImageSettings,
    SessionSettings,
    HealthSettings,
    environment.ServiceSettings,
):
    """Settings of one agent: what a site chooses, and what follows from the node and from where things are installed.

    `journal_stream`, `notify_socket` and `watchdog_usec` are named as systemd names them: what of our output is its
    journal's, where it takes signs of life, and after how many microseconds without one it ends the agent (0: never).
    So are `listen_fds`, the number of descriptors that it has kept for the process `listen_pid`, and `listen_fdnames`,
    their names with colons between them.

    `crl` is the file with the list of certificates that the site's authority has revoked; none means that none counts.
    `allowed` lists the common names of the client certificates that may call the agent, `edge_names` those that may
    reach the ports of sessions (none: the same ones). `mount_roots` lists the folders below which a session's mounts
    may lie; none means that no mount is allowed. `storages` leads from the names of storages to where this node has
    them, and `storage_ids` to the ids that stand in their markers. With `kubernetes_api` the agent stands for that
    cluster: it trusts the authority `kubernetes_ca`, shows the token in the file `kubernetes_token`, and mounts only
    what is in a claim.

    With an `ib_address`, its own on InfiniBand, sessions may use its HCAs.

    A healthy node has `expected_gpus`, whose names have the words `expected_gpu_model` in them, its `units` run, and
    `kernel_modules` are loaded.

    Docker keeps images and containers at `docker_root`, whose disk is looked at.

    `nodes_file` has the addresses of all nodes, which no range of `egress` opens, and the names by which sessions know
    them and their services. `state_folder` has on the disk what the next agent has to know.

    `gpu_folder` is on a tmpfs and has a folder for each container with GPUs, `gpu_library` is the preload library, and
    `mps_folder` has the pipes of the multi-process service. Containers tell at `sandbox_socket` what their sandboxes
    deny. What they see of their cores lies in `cores_folder`, and until they start `mounts_folder` has what they mount.
    They find Python packages at `package_index`, by a file in `packages_folder`. Steps of Slurm hold leases at
    `lease_socket`: those of root and of `lease_users`, by their numbers. The last `foreign_gpus` of
    the node belong to other jobs of Slurm.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX)

    name: str = Field(min_length=1, max_length=63)
    address: str = Field(min_length=1)
    port: Port = 6001
    bind: str = "0.0.0.0"  # noqa: S104 - every address of the node; the certificate decides who may call
    api_url: str = Field(pattern=r"^https://[^/]+$")
    ca: Path
    crl: Path | None = None
    cert: Path
    key: Path
    allowed: Annotated[tuple[str, ...], Field(min_length=1), WORDS]
    edge_names: Annotated[tuple[str, ...], WORDS] = ()
    mount_roots: Annotated[tuple[Path, ...], FOLDERS] = ()
    storages: dict[str, Path] = Field(default={})
    storage_ids: dict[str, str] = Field(default={})
    package_index: str = Field(default="", pattern=r"^(https://\S+)?$")
    nodes_file: Path | None = None
    ib_address: str = ""
    expected_gpus: int | None = Field(default=None, ge=0)
    expected_gpu_model: str = ""
    units: Annotated[tuple[str, ...], WORDS] = ()
    kernel_modules: Annotated[tuple[str, ...], WORDS] = ()
    simulated_gpus: int = Field(default=0, ge=0, le=MAX_GPUS)
    state_folder: Path = Path("/var/lib/penstock/agent")
    docker_root: Path = Path("/var/lib/docker")
    docker_socket: Path = Path("/var/run/docker.sock")
    journal_stream: str = ""
    notify_socket: str = ""
    watchdog_usec: int = Field(default=0, ge=0)
    listen_pid: int = Field(default=0, ge=0)
    listen_fds: int = Field(default=0, ge=0)
    listen_fdnames: str = ""
    gpu_folder: Path = Path("/run/penstock/gpu")
    gpu_library: Path = Path("/usr/lib/penstock/libpenstock-gpu.so")
    mps_folder: Path = Path("/run/penstock/mps")
    kubernetes_ca: Path = Path("/etc/penstock/kubernetes/ca.crt")
    kubernetes_token: Path = Path("/etc/penstock/kubernetes/token")
    cores_folder: Path = Path("/run/penstock/cores")
    mounts_folder: Path = Path("/run/penstock/mounts")
    packages_folder: Path = Path("/run/penstock/packages")
    sandbox_socket: Path = Path("/run/penstock/sandbox/agent.sock")
    lease_socket: Path = Path("/run/penstock/leases/agent.sock")
    lease_users: Annotated[tuple[int, ...], WORDS] = ()
    foreign_gpus: int = Field(default=0, ge=0)

    @field_validator("enforcement")
    @classmethod
    def _once(cls, value: list[Enforcement]) -> list[Enforcement]:
        if len(set(value)) < len(value):
            raise ValueError("a kind stands in the order twice")
        return value

    @property
    def edges(self) -> tuple[str, ...]:
        """Whose certificates may reach the ports of sessions."""
        return self.edge_names or self.allowed


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings; raises one InputError that names every variable that is missing or wrong."""
    of_systemd = {PREFIX + name: environ[name] for name in _OF_SYSTEMD if name in environ}
    settings = environment.load(Settings, {**environ, **of_systemd}, file=FILE)
    files = ["ca", "cert", "key"]
    files += ["crl"] if settings.crl else []
    files += ["kubernetes_ca", "kubernetes_token"] if settings.kubernetes_api else []
    absent = [(field, path) for field in files if not (path := getattr(settings, field)).is_file()]
    if absent:
        raise InputError.of(
            [
                Problem(
                    PREFIX + field.upper(),
                    f"there is no file {path}",
                    _HINTS.get(field, "name a PEM file of the site's PKI"),
                )
                for field, path in absent
            ]
        )
    return settings
