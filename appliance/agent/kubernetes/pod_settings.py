"""Settings of the site that hold for all pods of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from common.settings.kubernetes import PodSecurity, Pool
from common.settings.pod_template import PodTemplate, Toleration


@dataclass(frozen=True)
class FolderClaim:
    """A claim of the cluster's storage, which holds the folder that the site's workers have at `root`."""

    root: PurePosixPath
    name: str


@dataclass(frozen=True)
class PodSettings:
    """Whose pods they are, how GPUs are asked for, what may be mounted, and from which registries images are pulled.

    `machines` are the labels of the machines that may be used; none means all. `run_as` 0 means an image's own user.
    A pod that has no machine after `schedule_s` is taken back.
    A machine of which nothing was heard for `lost_s` has lost its pods. One of the `pools` is waited for `grow_s`.
    Containers see `site_files`, texts by their paths.
    """

    node: str
    resource: str
    machines: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = ()
    runtime_class: str | None = None
    pod_security: PodSecurity = PodSecurity.RESTRICTED
    run_as: int = 0
    template: PodTemplate = field(default_factory=PodTemplate)
    claims: Sequence[FolderClaim] = ()
    registries: Collection[str] = ()
    schedule_s: float = 10
    lost_s: int = 60
    pools: Sequence[Pool] = ()
    grow_s: float = 900
    site_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def selector(self) -> str:
        """Return what finds the machines that may be used."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.machines.items()))
