"""Parts that a site adds to the pods of a Kubernetes cluster, and those that it cannot change. Pure.

Names are those of Kubernetes. What would make a pod another one than the control API counts with, or give a session
rights that the profile "restricted" of Pod Security withholds, is refused by name and with the reason.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from common.strict import StrictModel

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_NAME = rf"^({LABEL}(\.{LABEL})*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?$"
ObjectName = Annotated[str, Field(pattern=rf"^{LABEL}(\.{LABEL})*$", max_length=253)]
LabelName = Annotated[str, Field(pattern=_LABEL_NAME)]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")]
Identity = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""A user or a group by its number; 0 is root's."""

_OURS = ("io.penstock.", "app.kubernetes.io/managed-by")


def _refused(why: str) -> BeforeValidator:
    def refuse(_: Any) -> None:
        raise PydanticCustomError("owned", "{why}", {"why": why})

    return BeforeValidator(refuse)


def _not_ours(name: str) -> str:
    if name.startswith(_OURS):
        raise PydanticCustomError("owned", "{why}", {"why": f"the agent alone writes {name}"})
    return name


_OMITTED = Field(exclude=True)
Asked = Annotated[None, _refused("the agent writes this, from what the session asks for"), _OMITTED]
Placed = Annotated[
    None,
    _refused("the agent says where pods run, by its settings `machines`, `tolerations`, `runtime_class`"),
    _OMITTED,
]
User = Annotated[None, _refused("who sessions run as is said by the settings `pod_security` and `run_as`"), _OMITTED]
NoClient = Annotated[None, _refused("a session is no client of the cluster"), _OMITTED]
NoRight = Annotated[None, _refused("a session gets no rights of its machine"), _OMITTED]
OtherName = Annotated[LabelName, BeforeValidator(_not_ours)]


class KubernetesPart(StrictModel):
    """A part of an object of Kubernetes, with its names."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)


class Toleration(KubernetesPart):
    """Taints of machines that do not keep sessions away."""

    key: LabelName | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.key is None and self.operator == "Equal":
            raise ValueError("a toleration without a key tolerates every taint; say so by `operator: Exists`")
        if self.operator == "Exists" and self.value:
            raise ValueError("with `operator: Exists` a toleration has no value")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("`tolerationSeconds` goes with `effect: NoExecute` alone")
        return self

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Return whether a taint does not keep a pod with this toleration away."""
        fits = self.operator == "Exists" or self.value == value
        return self.key in (None, key) and fits and self.effect in (None, effect)


class NamedObject(KubernetesPart):
    """Another object of the namespace."""

    name: ObjectName


class SeccompProfile(KubernetesPart):
    """Which system calls the machine lets through: as its container runtime says, or as a file of it does."""

    type: Literal["RuntimeDefault", "Localhost"]
    localhost_profile: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._/-]*$")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.type == "Localhost") != (self.localhost_profile is not None):
            raise ValueError("`localhostProfile` goes with `type: Localhost`, and only with it")
        return self


class SecurityContext(KubernetesPart):
    """What all processes of a pod have. `fs_group` owns the volumes, where their kind lets it."""

    fs_group: Identity | None = None
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    supplemental_groups: list[Identity] | None = None
    seccomp_profile: SeccompProfile | None = None
    run_as_non_root: User = None
    run_as_user: User = None
    run_as_group: User = None
    sysctls: NoRight = None
    se_linux_options: NoRight = None
    app_armor_profile: NoRight = None


class DnsOption(KubernetesPart):
    """An option of the resolver."""

    name: Annotated[str, Field(min_length=1)]
    value: str | None = None


class DnsConfig(KubernetesPart):
    """How names are resolved."""

    nameservers: list[IPv4Address | IPv6Address] | None = Field(default=None, max_length=3)
    searches: list[ObjectName] | None = Field(default=None, max_length=32)
    options: list[DnsOption] | None = None


class HostAlias(KubernetesPart):
    """Names of an address."""

    ip: IPv4Address | IPv6Address
    hostnames: list[ObjectName] = Field(min_length=1)


class PodSpec(KubernetesPart):
    """What a site may say of pods, and by name what it may not."""

    priority_class_name: ObjectName | None = None
    scheduler_name: ObjectName | None = None
    image_pull_secrets: list[NamedObject] | None = None
    dns_policy: Literal["ClusterFirst", "Default", "None"] | None = None
    dns_config: DnsConfig | None = None
    host_aliases: list[HostAlias] | None = None
    host_users: Literal[False] | None = None
    security_context: SecurityContext | None = None
    containers: Asked = None
    init_containers: Asked = None
    ephemeral_containers: Asked = None
    volumes: Asked = None
    hostname: Asked = None
    subdomain: Asked = None
    restart_policy: Asked = None
    active_deadline_seconds: Asked = None
    termination_grace_period_seconds: Asked = None
    overhead: Asked = None
    node_name: Placed = None
    node_selector: Placed = None
    affinity: Placed = None
    tolerations: Placed = None
    runtime_class_name: Placed = None
    topology_spread_constraints: Placed = None
    service_account: NoClient = None
    service_account_name: NoClient = None
    automount_service_account_token: NoClient = None
    enable_service_links: NoClient = None
    host_network: NoRight = None
    host_pid: Annotated[NoRight, Field(alias="hostPID")] = None
    host_ipc: Annotated[NoRight, Field(alias="hostIPC")] = None
    share_process_namespace: NoRight = None


class PodMetadata(KubernetesPart):
    """Labels and annotations beside the agent's own."""

    labels: dict[OtherName, LabelValue] = Field(default_factory=dict)
    annotations: dict[OtherName, str] = Field(default_factory=dict)
    name: Asked = None
    generate_name: Asked = None
    namespace: Asked = None
    finalizers: Asked = None
    owner_references: Asked = None


class PodTemplate(KubernetesPart):
    """What a site adds to every pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
