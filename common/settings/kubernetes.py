"""Settings of a Kubernetes cluster that an agent stands for. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from common.settings.options import PAIRS, PlainPath
from common.settings.pod_template import LABEL, LabelName, LabelValue, ObjectName, PodTemplate, Toleration
from common.strict import StrictModel

ClusterUrl = Annotated[
    str,
    Field(
        pattern=r"^(https://[A-Za-z0-9.:\[\]-]+)?$",
        description="URL of the API server; its certificate is checked against `ca.crt`",
    ),
]


class PodSecurity(StrEnum):
    """A profile of Kubernetes' Pod Security that pods of sessions keep, and that their namespace enforces."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"


class KubernetesSettings(StrictModel):
    """The cluster that an agent stands for in place of its machine: in `kubernetes` of a node."""

    kubernetes_api: ClusterUrl = ""
    kubernetes_namespace: Annotated[str, Field(pattern=rf"^{LABEL}$")] = Field(
        default="penstock", description="where the pods are"
    )
    kubernetes_gpu_resource: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$")] = Field(
        default="nvidia.com/gpu", description="as what GPUs are asked for"
    )
    kubernetes_machines: Annotated[dict[LabelName, LabelValue], PAIRS] = Field(
        default={}, description="labels of the machines that may be used, as `{pool: a}`; none means all"
    )
    kubernetes_tolerations: list[Toleration] = Field(
        default=[], description="taints that do not keep sessions away, as Kubernetes writes tolerations"
    )
    kubernetes_runtime_class: ObjectName | None = Field(
        default=None, description="RuntimeClass of the pods, such as one of gVisor or Kata"
    )
    kubernetes_pod_security: PodSecurity = Field(
        default=PodSecurity.RESTRICTED,
        description="profile of Pod Security: with `restricted` no image runs as root, with `baseline` all do as they "
        "were built ([more](admin.md#images-that-run-as-root))",
    )
    kubernetes_run_as: int = Field(
        default=0, ge=0, le=2**31 - 1, description="number of the user and group in place of an image's own; 0: its own"
    )
    kubernetes_pod_template: PodTemplate = Field(
        default_factory=PodTemplate,
        description="labels, annotations and parts of the spec for every pod ([which](admin.md#pods-of-a-cluster))",
    )
    kubernetes_claims: Annotated[dict[PlainPath, ObjectName], PAIRS] = Field(
        default={},
        description="folders of the site's workers, and the claims that hold them; other volumes are refused",
    )
    # the control API waits 30 s for the answer to a launch
    kubernetes_schedule_s: float = Field(
        default=10,
        gt=0,
        le=20,
        description="a pod without a machine after so many seconds is deleted, and its session waits in our queue",
    )
    kubernetes_lost_s: int = Field(
        default=60,
        ge=0,
        le=86400,
        description="so many seconds after a machine was heard of last the cluster gives up its pods, and trainings "
        "start again",
    )
