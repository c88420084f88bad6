"""A question to the cluster: does the namespace keep whoever has the agent's token from making privileged pods?"""

from __future__ import annotations

import structlog

from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.pod_settings import PodSettings
from common.errors import PenstockError

log = structlog.get_logger()


async def warn_of_open(client: Client, pod_settings: PodSettings) -> None:
    """Ask for a pod with all rights of its machine, which is never made; say so where the cluster would take it."""
    container = {
        "name": "probe",
        "image": "penstock.invalid/privileged:probe",
        "securityContext": {"privileged": True},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "penstock-privileged-probe"},
        "spec": {"containers": [container], "hostPID": True},
    }
    try:
        await client.create(client.pods, body, dryRun="All")
    except PenstockError:
        # as it should be; where the cluster is away or the role lacks the right, whatever comes next says so
        return
    log.warning(
        "whoever has the agent's token can make privileged pods: the namespace enforces no profile of Pod Security",
        namespace=client.namespace,
        hint=f"apply what `penstock site kubernetes {pod_settings.node}` prints",
    )
