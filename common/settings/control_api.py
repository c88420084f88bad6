"""Settings of the control API that a site chooses: the part `control_api` of `site.yml`. Pure; times are in seconds."""

from __future__ import annotations

from decimal import Decimal
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from common import gang_networks
from common.settings.options import AbsolutePath
from common.strict import StrictModel

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

EntryIdAttribute = Literal["entryUUID", "objectGUID", "nsUniqueId", "ipaUniqueID"]
"""What an entry of a directory keeps whatever it is called; `objectGUID` is 16 bytes, the others are text."""


Price = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)]


class ControlApiSettings(StrictModel):
    """Deadlines, what is kept for how long, prices, the scheduler's patience, logins, and the directory of people."""

    heartbeat_interval_s: float = Field(default=5, gt=0, description="how often agents report")
    node_lost_s: float = Field(default=15, gt=0, description="after so long without a report a node is lost")
    clock_offset_s: float = Field(
        default=5, gt=0, description="a node whose clock is further from the API's takes nothing new, and says so"
    )
    node_gone_s: float = Field(
        default=10 * MINUTE,
        gt=0,
        description="after so long the GPUs of sessions that were deleted on a lost node are free",
    )
    unknown_containers_keep_s: float = Field(
        default=DAY, ge=0, description="for so long unknown containers are left alone"
    )
    launch_limit_s: float = Field(
        default=MINUTE, gt=0, description="an agent must take a container; else the session waits again"
    )
    pull_limit_s: float = Field(default=HOUR, gt=0, description="an image must be there; else the session fails")
    start_limit_s: float = Field(default=5 * MINUTE, gt=0, description="a container must start; else the session fails")
    stop_grace_s: int = Field(
        default=5, ge=0, le=600, description="between the signal and the end of a container that is deleted"
    )
    reclaim_grace_s: int = Field(
        default=30,
        ge=0,
        le=600,
        description="the same for one that is reclaimed and will start again: time for a checkpoint",
    )
    warn_before_s: float = Field(
        default=5 * MINUTE, ge=0, description="so long before its time limit a session is warned"
    )
    metrics_keep_s: float = Field(default=7 * DAY, gt=0, description="how long it is kept what sessions used")
    denied_call_keep_s: float = Field(default=30 * DAY, gt=0, description="how long it is kept what sandboxes denied")
    ended_session_keep_s: float = Field(
        default=90 * DAY, gt=0, description="how long ended sessions are kept, with the ends of their logs"
    )
    accounting_detail_keep_s: float = Field(
        default=400 * DAY, gt=0, description="how long accounting is kept to the second; of what is older, sums by day"
    )
    price_currency: str | None = Field(
        default=None, pattern=r"^[A-Z]{3}$", description="currency of the prices (ISO 4217); without it nothing costs"
    )
    price_gpu_hour: Price = Field(default=Decimal(0), description="what an hour of a whole GPU costs")
    price_gpu_hour_of: dict[str, Price] = Field(
        default={}, description="the same of GPUs of some models, by the names that `penstock node get NAME` shows"
    )
    price_core_hour: Price = Field(default=Decimal(0), description="what an hour of a core costs that sessions ask for")
    price_gib_hour: Price = Field(default=Decimal(0), description="what an hour of a GiB of memory costs, likewise")
    ended_key_keep_s: float = Field(default=30 * DAY, ge=0, description="how long keys are listed that have ended")
    min_runtime_s: int = Field(default=0, ge=0, le=YEAR, description="nobody is reclaimed before having run so long")
    reserve_after_s: int = Field(
        default=MINUTE,
        ge=0,
        le=YEAR,
        description="a session that waits longer, and is within its quota, gets room kept for it",
    )
    strict_order_after_s: int = Field(
        default=HOUR,
        ge=0,
        le=YEAR,
        description="work that cannot be reclaimed does not pass an older session of its project that waits longer and "
        "would fit in the quota; where more than that may be used, places are kept for that one",
    )
    spare_half_life_s: int = Field(
        default=0,
        ge=0,
        le=YEAR,
        description="of what is spare those go first who had less of it lately; after so long half of it counts; 0: it "
        "does not count",
    )
    consolidation: bool = Field(
        default=False,
        description="move preemptible sessions where that lets one start that is entitled to room and waits otherwise",
    )
    moves_per_hour: int = Field(
        default=10,
        ge=0,
        le=1_000_000,
        description="so many are moved in an hour at most; who has ended since counts no more",
    )
    moves_per_session: int = Field(default=1, ge=0, le=1000, description="no session is moved more often than that")
    gang_networks: IPv4Network = Field(
        default=gang_networks.DEFAULT,
        description="private range of which each session with several containers gets a /27 while it runs",
    )
    memory_per_gpu_mib: int = Field(
        default=0,
        ge=0,
        description="memory for each GPU, and that part of it for a share, of sessions that name none; 0: as much as "
        "goes with a GPU on the node that has the least of it",
    )
    memory_per_core_mib: int = Field(
        default=0, ge=0, description="memory for each core of sessions that have no GPU and name none; 0: likewise"
    )
    disk_per_gpu_mib: int = Field(
        default=100 * 1024,
        ge=1,
        description="what sessions that name no disk may write beside their volumes, for each GPU, and that part of it "
        "for a share",
    )
    disk_per_core_mib: int = Field(
        default=20 * 1024, ge=1, description="the same for each core of sessions that have no GPU"
    )
    login_lifetime_s: int = Field(default=12 * HOUR, gt=0, description="a login ends after so long")
    login_idle_s: int = Field(default=2 * HOUR, gt=60, description="a login ends after so long without use")
    keys_per_user: int = Field(default=100, ge=1, description="API keys that one person may have")
    waiting_per_user: int = Field(
        default=1000,
        ge=1,
        description="sessions of one person that may wait at a time; more are refused until some start",
    )
    streams_per_user: int = Field(
        default=50, ge=1, description="followed logs and terminals that one person may have open at once"
    )
    changes_per_hour: int = Field(
        default=2 * HOUR,
        ge=60,
        description="changes, and looks at the site's logs, that one person may make in an hour, as many by keys as "
        "signed in; each is a line of the audit log",
    )
    ldap_url: str | None = Field(
        default=None,
        pattern=r"^ldaps?://[^/\s]+$",
        description="`ldaps://HOST` or `ldap://HOST`; the latter with StartTLS, never in clear",
    )
    ldap_ca: AbsolutePath | None = Field(
        default=None, description="file of the master with the authority of the directory's certificate, PEM"
    )
    ldap_user_dn: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9-]*=\{name\},[^{}]+$",
        description="the entry of a person: `uid={name},ou=people,dc=example,dc=org`",
    )
    ldap_search_base: str | None = Field(default=None, description="instead: below which entry to look for the person")
    ldap_search_filter: str = Field(
        default="(uid={name})", pattern=r"\{name\}", description="by what to look for the person"
    )
    ldap_bind_dn: str | None = Field(default=None, description="as whom to look; without it anonymously")
    ldap_bind_password_file: AbsolutePath | None = Field(
        default=None, description="file of the master with the password of `ldap_bind_dn`"
    )
    ldap_id_attribute: EntryIdAttribute = Field(
        default="entryUUID",
        description="what an entry keeps, and accounts are bound to; of Active Directory `objectGUID`",
    )
    ldap_disabled_filter: str = Field(
        default="(|(userAccountControl:1.2.840.113556.1.4.803:=2)(nsAccountLock=TRUE)"
        "(pwdAccountLockedTime=000001010000Z))",
        pattern=r"^\(.+\)$",
        description="finds the people whom the directory has disabled",
    )
    ldap_check_s: float = Field(
        default=5 * MINUTE,
        ge=10,
        description="how often it is asked whether the directory still has the site's people",
    )
    ldap_admin_group: str | None = Field(
        default=None,
        description="group whose members are administrators at each login, unless a role was given by hand",
    )
    ldap_auditor_group: str | None = Field(default=None, description="group whose members are auditors, likewise")

    @field_validator("gang_networks")
    @classmethod
    def _for_gangs(cls, value: IPv4Network) -> IPv4Network:
        return gang_networks.check(value)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.node_lost_s <= self.heartbeat_interval_s:
            raise ValueError("node_lost_s must be above heartbeat_interval_s: a node would be lost before it reports")
        prices = (self.price_gpu_hour, *self.price_gpu_hour_of.values(), self.price_core_hour, self.price_gib_hour)
        if any(prices) != (self.price_currency is not None):
            raise ValueError("price_currency and prices go together: write both, or neither")
        if self.ldap_url and (self.ldap_user_dn is None) == (self.ldap_search_base is None):
            raise ValueError("ldap_url needs either ldap_user_dn or ldap_search_base")
        if (self.ldap_bind_dn is None) != (self.ldap_bind_password_file is None):
            raise ValueError("ldap_bind_dn and ldap_bind_password_file go together")
        return self
