"""Settings of the control API: the only module of this package that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from appliance.gpu.share import Split
from reservoir.errors import InputError, Problem

PREFIX = "PENSTOCK_API_"


class Settings(BaseModel):
    """What an administrator may set, each as `PENSTOCK_API_<NAME>`; times are in seconds.

    `socket` takes the place of `host` and `port`. `tls_cert` and `tls_key` make a TCP port speak TLS and ask agents for
    their certificates. `trust_client_headers` says whether `X-Client-Verify` and `X-Client-Name` come from our own
    edge: that is so behind the unix socket, which only the edge's group may open, and nowhere else unless the
    administrator says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str = "sqlite+aiosqlite:///./penstock.db"
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
    volume_root: str | None = Field(default=None, pattern=r"^/")
    min_runtime_s: int = Field(default=0, ge=0, le=31_536_000)
    reserve_after_s: int = Field(default=60, ge=0, le=31_536_000)
    large_shm_mib: int = Field(default=8192, ge=64)
    login_lifetime_s: int = Field(default=12 * 3600, gt=0)
    login_idle_s: int = Field(default=2 * 3600, gt=60)

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
        return self


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment; raises InputError that names each variable that is wrong or unknown."""
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): value for name, value in source.items() if name.startswith(PREFIX) and value
    }
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
            f"{text!r} is not a file mode", where=f"{PREFIX}SOCKET_MODE", cure="write octal digits, such as 0660"
        ) from None
