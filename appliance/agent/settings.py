"""What the agent needs to know, read from the environment; the only place of this package that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from common.errors import InputError, Problem
from common.gpu.kinds import Compute, Enforcement
from common.gpu.share import MAX_GPUS

PREFIX = "PENSTOCK_AGENT_"
_OF_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC")
_HINTS = {
    "kubernetes_ca": "write the PEM file of the cluster's authority there",
    "kubernetes_token": "write the token of the agent's service account there",
}

Port = Annotated[int, Field(ge=1, le=65535)]


def _names(value: Any) -> Any:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _folders(value: Any) -> Any:
    return tuple(part for part in value.split(":") if part) if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(":") if part]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise ValueError(f"a pair is written NAME=VALUE, and {wrong[0] or 'nothing'} is none")
    return tuple((name, value) for name, _, value in pairs)


def _range(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    first, dash, last = value.partition("-")
    if not dash:
        raise ValueError("a range of ports is written FIRST-LAST")
    return first, last


class Settings(BaseModel):
    """Settings of one agent; each field is the variable `PENSTOCK_AGENT_<FIELD>`.

    Only `notify_socket` and `watchdog_usec` are named as systemd names them: where it takes signs of life, and after
    how many microseconds without one it ends the agent (0: never).

    `allowed` lists the common names of the client certificates that may call the agent, `edge_names` those that may
    reach the ports of sessions (none: the same ones). `mount_roots` lists the folders below which a session's mounts
    may lie; none means that no mount is allowed. `port_range` is the first and the last port, as `57000-57999`, behind
    which ports of sessions are offered to the edge. `pids_limit` is how many processes and threads one session may
    have. `simulated_gpu_islands` divides the simulated GPUs into so many islands of about equal size.

    `accelerators` lists the kinds of accelerators that the node is asked for. `enforcement` is the order in which ways
    to hold GPU shares are tried; without `none` at its end, GPUs that none of them can hold are not shared.
    `gpu_compute` says how the time of a shared GPU is divided, in periods of `gpu_period_ms`. A container that has
    `gpu_slack_mib` more GPU memory than its share is ended. `gpu_folder` is on a tmpfs and has a folder for each
    container with GPUs, `gpu_library` is the preload library, and `mps_folder` has the pipes of the multi-process
    service. Samples of what containers use are sent every `use_interval_s` seconds, and so is what sandboxes deny, of
    which containers tell at `sandbox_socket`. What containers see of their cores lies in `cores_folder`.

    With `kubernetes_api`, the URL of a cluster, the agent stands for that cluster instead of its own machine. It trusts
    the authority `kubernetes_ca`, shows the token in the file `kubernetes_token`, and has its pods in
    `kubernetes_namespace`. GPUs are asked for as `kubernetes_gpu_resource`. `kubernetes_claims` says which claim of the
    cluster's storage holds a folder of the workers, as `/mnt/penstock=volumes:/mnt/data=data`; of other folders only
    those below `mount_roots` are mounted, from the cluster's machines. Only machines with the labels
    `kubernetes_machines`, as `pool=a:zone=b`, are used. A pod that finds no machine within `kubernetes_schedule_s`
    seconds is taken back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=63)
    address: str = Field(min_length=1)
    port: int = Field(default=6001, ge=1, le=65535)
    bind: str = "0.0.0.0"  # noqa: S104 - every address of the node; the certificate decides who may call
    api_url: str = Field(pattern=r"^https://[^/]+$")
    ca: Path
    cert: Path
    key: Path
    allowed: Annotated[tuple[str, ...], BeforeValidator(_names), Field(min_length=1)]
    simulated_gpus: int = Field(default=0, ge=0, le=MAX_GPUS)
    simulated_gpu_model: str = "Simulated GPU"
    simulated_gpu_memory_mib: int = Field(default=16384, ge=1)
    simulated_gpu_islands: int = Field(default=1, ge=1, le=MAX_GPUS)
    region: str = Field(default="", max_length=63)
    switch: str = Field(default="", max_length=63)
    docker_socket: Path = Path("/var/run/docker.sock")
    mount_roots: Annotated[tuple[Path, ...], BeforeValidator(_folders)] = ()
    edge_names: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    port_range: Annotated[tuple[Port, Port], BeforeValidator(_range)] = (57000, 57999)
    pids_limit: int = Field(default=4096, ge=64)
    accelerators: Annotated[tuple[str, ...], BeforeValidator(_names)] = ("nvidia",)
    enforcement: Annotated[tuple[Enforcement, ...], BeforeValidator(_names), Field(min_length=1)] = tuple(Enforcement)
    gpu_compute: Compute = Compute.STRICT
    gpu_period_ms: int = Field(default=200, ge=20, le=2000)
    notify_socket: str = ""
    watchdog_usec: int = Field(default=0, ge=0)
    gpu_slack_mib: int = Field(default=512, ge=0)
    gpu_folder: Path = Path("/run/penstock/gpu")
    gpu_library: Path = Path("/usr/lib/penstock/libpenstock-gpu.so")
    mps_folder: Path = Path("/run/penstock/mps")
    use_interval_s: float = Field(default=15.0, gt=0, le=3600)
    kubernetes_api: str = Field(default="", pattern=r"^(https://[^/]+)?$")
    kubernetes_ca: Path = Path("/etc/penstock/kubernetes/ca.crt")
    kubernetes_token: Path = Path("/etc/penstock/kubernetes/token")
    kubernetes_namespace: str = Field(default="penstock", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    kubernetes_gpu_resource: str = Field(default="nvidia.com/gpu", pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$")
    kubernetes_machines: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = ()
    kubernetes_claims: Annotated[
        tuple[tuple[str, Annotated[str, Field(min_length=1)]], ...], BeforeValidator(_pairs)
    ] = ()
    # the control API waits 30 s for the answer to a launch
    kubernetes_schedule_s: float = Field(default=10.0, gt=0, le=20)
    cores_folder: Path = Path("/run/penstock/cores")
    sandbox_socket: Path = Path("/run/penstock/sandbox/agent.sock")

    @field_validator("port_range")
    @classmethod
    def _rises(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] > value[1]:
            raise ValueError(f"{value[0]} is above {value[1]}")
        return value

    @field_validator("enforcement")
    @classmethod
    def _once(cls, value: tuple[Enforcement, ...]) -> tuple[Enforcement, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a kind stands in the order twice")
        return value

    @property
    def edges(self) -> tuple[str, ...]:
        """Whose certificates may reach the ports of sessions."""
        return self.edge_names or self.allowed


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings; raises one InputError that names every variable that is missing or wrong."""
    given = {key.removeprefix(PREFIX).lower(): value for key, value in environ.items() if key.startswith(PREFIX)}
    given |= {key.lower(): environ[key] for key in _OF_SYSTEMD if key in environ}
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        raise InputError.of([_problem(detail) for detail in error.errors()]) from None
    files = ["ca", "cert", "key", *(["kubernetes_ca", "kubernetes_token"] if settings.kubernetes_api else [])]
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


def _problem(detail: Any) -> Problem:
    variable = PREFIX + str(detail["loc"][0]).upper()
    if detail["type"] == "missing":
        return Problem(variable, "the variable is not set", "set it in /etc/penstock/agent.env")
    if detail["type"] == "extra_forbidden":
        return Problem(variable, "the agent knows no such setting", "remove it, or check its spelling")
    return Problem(variable, f"{detail['msg']} (it is {detail['input']!r})", "correct it in /etc/penstock/agent.env")
