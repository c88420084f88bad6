"""Settings of the control API: the only module of this package that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from common.app_addresses import AppAddresses
from common.gpu.share import Granularity
from common.lease_protocol import HOLDER
from common.settings import environment
from common.settings.audit import AuditSettings
from common.settings.control_api import ControlApiSettings
from common.settings.disk import DiskSettings
from common.settings.health import AlertSettings, CheckSettings, HealthKeeping
from common.settings.images import ImageSettings
from common.settings.options import FOLDERS, AbsolutePath, Port
from common.settings.repair import AutomaticRepairSettings


class Launching(StrEnum):
    """Who lends the places that the scheduler chooses: nobody has to, or Slurm."""

    DIRECT = "direct"
    SLURM = "slurm"


PREFIX = "PENSTOCK_API_"
FILE = "/etc/penstock/api.local.env"
_OF_SYSTEMD = ("JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC")


def _octal(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value, 8)
    except ValueError:
        raise ValueError(f"{value!r} is not a file mode; write octal digits, such as 0660") from None


class Settings(
    Granularity,
    ControlApiSettings,
    DiskSettings,
    ImageSettings,
    CheckSettings,
    HealthKeeping,
    AlertSettings,
    AutomaticRepairSettings,
    AuditSettings,
    environment.ServiceSettings,
):
    """What the API is told: what a site chooses, and what follows from where it is installed.

    `socket` takes the place of `host` and `port`. `tls_cert` and `tls_key` make a TCP port speak TLS and ask agents for
    their certificates. `trust_client_headers` says whether `X-Client-Verify` and `X-Client-Name` come from our own
    edge: that is so behind the unix socket, which only the edge's group may open, and nowhere else unless the
    administrator says so. `pvc_root` is where the workers have the storage `pvc_storage` with the volumes of projects,
    and `storages` leads from the names of all storages that workers have to where; `host_paths` are the folders of the
    nodes that sessions may mount beside these volumes. `agent_crl` is the file with the list of certificates that the
    site's authority has revoked, `agents_file` one with the names of the site's workers, one a line: nobody else may be
    an agent. Without them all certificates of the site count. `apps_url` is where the edge offers the ports of
    sessions, empty where it does not, and `apps_name` the name below which each has one of its own there.
    `audit_folder` has the files of the audit log, sealed with what `audit_key` holds; without them none is kept.
    `logs_folder` has the journals of all nodes, where the site gathers them. `controller` says whether the site's
    controller takes orders of repairs. `engine` lends the places of sessions: with Slurm each has a job in
    `slurm_partition`, asked for by the commands of Slurm, which find its controller by the file `slurm_conf` or by
    themselves; on its nodes the program `slurm_holder` holds its lease. `journal_stream`, `notify_socket` and
    `watchdog_usec` are named as systemd names them: what of our output is its journal's, where it takes signs of life,
    and after how many microseconds without one it ends the API (0: never).
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True)

    database_url: str = "postgresql+psycopg:///penstock"
    socket: Path | None = None
    socket_mode: Annotated[int, BeforeValidator(_octal)] = Field(default=0o660, ge=0, le=0o777)
    host: str = "127.0.0.1"
    port: Port = 56789
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trust_client_headers: bool | None = None
    agent_ca: Path | None = None
    agent_crl: Path | None = None
    agent_cert: Path | None = None
    agent_key: Path | None = None
    agents_file: Path | None = None
    pvc_root: AbsolutePath | None = None
    pvc_storage: str = Field(default="shared", min_length=1, max_length=63)
    storages: dict[str, AbsolutePath] = Field(default={})
    host_paths: Annotated[tuple[AbsolutePath, ...], FOLDERS] = ()
    apps_url: str = Field(default="", pattern=r"^(https://[^/]+)?$")
    apps_name: str = Field(default="", pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)+)?$")
    audit_folder: Path | None = None
    logs_folder: Path | None = None
    controller: bool = False
    engine: Launching = Launching.DIRECT
    slurm_partition: str = Field(default="penstock", pattern=r"^[A-Za-z0-9_-]{1,63}$")
    slurm_conf: Path | None = None
    slurm_holder: str = Field(default=HOLDER, pattern=r"^/[A-Za-z0-9/._ -]+$")
    audit_key: Path | None = None
    journal_stream: str = ""
    notify_socket: str = ""
    watchdog_usec: int = Field(default=0, ge=0)

    @property
    def granularity(self) -> Granularity:
        """How the administrator divides a GPU."""
        return Granularity(fgpu_per_gpu=self.fgpu_per_gpu, steps_per_fgpu=self.steps_per_fgpu)

    @property
    def apps(self) -> AppAddresses:
        """Where people find the apps of sessions."""
        return AppAddresses(self.apps_url, self.apps_name)

    @property
    def trusts_client_headers(self) -> bool:
        """Whether a proxy of ours has checked the agents' certificates."""
        return self.socket is not None if self.trust_client_headers is None else self.trust_client_headers

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if self.audit_syslog_certificate and self.agent_cert is None:
            raise ValueError("audit_syslog_certificate needs agent_cert")
        if self.apps_name and not self.apps_url:
            raise ValueError("apps_name needs apps_url")
        if (self.audit_folder is None) != (self.audit_key is None):
            raise ValueError("audit_folder and audit_key go together")
        if len({path is None for path in (self.agent_ca, self.agent_cert, self.agent_key)}) > 1:
            raise ValueError("agent_ca, agent_cert and agent_key go together")
        return self


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment; raises InputError that names each variable that is wrong or unknown."""
    given = os.environ if environ is None else environ
    of_systemd = {PREFIX + name: given[name] for name in _OF_SYSTEMD if name in given}
    return environment.load(Settings, {**given, **of_systemd}, file=FILE)
