"""Settings of the control API: the only module of this package that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from api import gang_networks
from common.errors import InputError, Problem
from common.gpu.share import Split

PREFIX = "PENSTOCK_API_"


HostFolder = Annotated[str, Field(pattern=r"^/")]


class Settings(BaseModel):
    """What an administrator may set, each as `PENSTOCK_API_<NAME>`; times are in seconds.

    `socket` takes the place of `host` and `port`. `tls_cert` and `tls_key` make a TCP port speak TLS and ask agents for
    their certificates. `trust_client_headers` says whether `X-Client-Verify` and `X-Client-Name` come from our own
    edge: that is so behind the unix socket, which only the edge's group may open, and nowhere else unless the
    administrator says so. `host_mounts` are the folders of the nodes that sessions may mount beside their volumes,
    separated by colons; `apps_url` is where the edge offers the ports of sessions, empty where it does not. For
    `use_keep_s` it is kept what sessions used of their GPUs, for `denial_keep_s` what their sandboxes denied.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str = "postgresql+psycopg:///penstock"
    socket: Path | None = None
    socket_mode: int = Field(default=0o660, ge=0, le=0o777)
    host: str = "127.0.0.1"
    port: int = Field(default=56789, ge=1, le=65535)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trust_client_headers: bool | None = None
    agent_ca: Path | None = None
    agent_cert: Path | None = None
    agent_key: Path | None = None
    fgpu_per_gpu: int = 2
    steps_per_fgpu: int = 10
    heartbeat_interval_s: float = Field(default=5.0, gt=0)
    node_lost_s: float = Field(default=15.0, gt=0)
    node_gone_s: float = Field(default=600.0, gt=0)
    unknown_containers_keep_s: float = Field(default=24 * 3600.0, ge=0)
    launch_limit_s: float = Field(default=60.0, gt=0)
    pull_limit_s: float = Field(default=3600.0, gt=0)
    start_limit_s: float = Field(default=300.0, gt=0)
    stop_grace_s: int = Field(default=5, ge=0, le=600)
    reclaim_grace_s: int = Field(default=30, ge=0, le=600)
    use_keep_s: float = Field(default=7 * 24 * 3600.0, gt=0)
    denial_keep_s: float = Field(default=30 * 24 * 3600.0, gt=0)
    warn_before_s: float = Field(default=300.0, ge=0)
    volume_root: str | None = Field(default=None, pattern=r"^/")
    host_mounts: tuple[HostFolder, ...] = ()
    apps_url: str = Field(default="", pattern=r"^(https://[^/]+)?$")
    gang_networks: IPv4Network = gang_networks.DEFAULT
    min_runtime_s: int = Field(default=0, ge=0, le=31_536_000)
    reserve_after_s: int = Field(default=60, ge=0, le=31_536_000)
    large_shm_mib: int = Field(default=8192, ge=64)
    login_lifetime_s: int = Field(default=12 * 3600, gt=0)
    login_idle_s: int = Field(default=2 * 3600, gt=60)
    ldap_url: str | None = Field(default=None, pattern=r"^ldaps?://[^/\s]+$")
    ldap_ca: Path | None = None
    ldap_user_dn: str | None = Field(default=None, pattern=r"\{name\}")
    ldap_search_base: str | None = None
    ldap_search_filter: str = Field(default="(uid={name})", pattern=r"\{name\}")
    ldap_bind_dn: str | None = None
    ldap_bind_password_file: Path | None = None
    ldap_admin_group: str | None = None
    ldap_auditor_group: str | None = None

    @field_validator("gang_networks")
    @classmethod
    def _for_gangs(cls, value: IPv4Network) -> IPv4Network:
        return gang_networks.check(value)

    @property
    def split(self) -> Split:
        """How the administrator divides a GPU."""
        return Split(fgpu_per_gpu=self.fgpu_per_gpu, steps_per_fgpu=self.steps_per_fgpu)

    @property
    def trusts_client_headers(self) -> bool:
        """Whether a proxy of ours has checked the agents' certificates."""
        return self.socket is not None if self.trust_client_headers is None else self.trust_client_headers

    @property
    def serves_tls(self) -> bool:
        """Whether users reach the API over TLS: by its own certificate, or through the edge before the socket."""
        return self.socket is not None or self.tls_cert is not None

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        Split(fgpu_per_gpu=self.fgpu_per_gpu, steps_per_fgpu=self.steps_per_fgpu)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if len({path is None for path in (self.agent_ca, self.agent_cert, self.agent_key)}) > 1:
            raise ValueError("agent_ca, agent_cert and agent_key go together")
        if self.ldap_url and (self.ldap_user_dn is None) == (self.ldap_search_base is None):
            raise ValueError("ldap_url needs either ldap_user_dn or ldap_search_base")
        if (self.ldap_bind_dn is None) != (self.ldap_bind_password_file is None):
            raise ValueError("ldap_bind_dn and ldap_bind_password_file go together")
        return self


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment; raises InputError that names each variable that is wrong or unknown."""
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): value for name, value in source.items() if name.startswith(PREFIX) and value
    }
    if "host_mounts" in values:
        values["host_mounts"] = tuple(filter(None, values["host_mounts"].split(":")))
    if "socket_mode" in values:
        values["socket_mode"] = _octal(values["socket_mode"])
    try:
        return Settings(**values)
    except ValidationError as error:
        raise InputError.of(
            [
                Problem(
                    PREFIX + str(item["loc"][0]).upper() if item["loc"] else PREFIX + "*",
                    "unknown setting" if item["type"] == "extra_forbidden" else str(item["msg"]),
                    "correct or remove the variable",
                )
                for item in error.errors()
            ]
        ) from error


def _octal(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        raise InputError(
            f"{text!r} is not a file mode", where=f"{PREFIX}SOCKET_MODE", hint="write octal digits, such as 0660"
        ) from None
