"""The runtime of a cluster, put together."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath

from appliance.agent import descriptors
from appliance.agent.container_runtime import ContainerRuntime
from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.cluster_info import base_node_info
from appliance.agent.kubernetes.images import Images
from appliance.agent.kubernetes.pod_ports import PodPorts
from appliance.agent.kubernetes.pod_settings import FolderClaim, PodSettings
from appliance.agent.kubernetes.pod_supervisor import PodSupervisor
from appliance.agent.kubernetes.terminal import Terminal
from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.reports.app_callers import AppCallerReporter
from appliance.agent.settings import Settings
from appliance.agent.site_files import AUTHORITY, PIP, pip_settings
from appliance.agent.site_nodes import SiteNodes
from appliance.agent.storages import Storages
from appliance.agent.tls import server_context
from appliance.agent.volume_folders import VolumeFolders
from common.errors import InputError


def build(settings: Settings, strangers: Strangers) -> ContainerRuntime:
    """Return what runs pods in a cluster; nothing is called yet.

    Raises InputError where the cluster's authority cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=str(settings.kubernetes_ca))
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"the authority of the cluster cannot be read: {error}",
            where="PENSTOCK_AGENT_KUBERNETES_CA",
            hint="write the PEM file of the cluster's authority there",
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    pod_settings = PodSettings(
        node=settings.name,
        resource=settings.kubernetes_gpu_resource,
        machines=settings.kubernetes_machines,
        tolerations=settings.kubernetes_tolerations,
        runtime_class=settings.kubernetes_runtime_class,
        pod_security=settings.kubernetes_pod_security,
        run_as=settings.kubernetes_run_as,
        template=settings.kubernetes_pod_template,
        claims=[FolderClaim(PurePosixPath(root), name) for root, name in settings.kubernetes_claims.items()],
        registries=settings.registries,
        schedule_s=settings.kubernetes_schedule_s,
        lost_s=settings.kubernetes_lost_s,
        pools=settings.kubernetes_pools,
        grow_s=settings.kubernetes_grow_s,
        site_files=_site_files(settings),
    )
    client = Client(
        settings.kubernetes_api, settings.kubernetes_token, context, namespace=settings.kubernetes_namespace
    )
    base = base_node_info(settings.name, region=settings.region, switch=settings.switch, started_at=datetime.now(UTC))
    forwarder = PortForwarder(
        server_context(settings),
        settings.edges,
        bind=settings.bind,
        port_range=settings.port_range,
        strangers=strangers,
        most=descriptors.for_ports(descriptors.raise_limit()),
    )
    cluster = PodSupervisor(client, pod_settings, base, PodPorts(forwarder), SiteNodes(settings.nodes_file).hosts)
    return ContainerRuntime(
        node_info=cluster.node_info,
        containers=cluster,
        images=Images(client, pod_settings),
        terminal=partial(Terminal, client),
        volumes=VolumeFolders(settings.mount_roots, Storages(settings.storages, settings.storage_ids)),
        begin=lambda: None,
        tasks={"callers of apps": AppCallerReporter(settings, forwarder).run},
        is_stuck=lambda: False,
        close=lambda: None,
    )


def _site_files(settings: Settings) -> dict[str, str]:
    """Return what containers see of their site; without an index of packages nothing."""
    if not settings.package_index:
        return {}
    return {PIP: pip_settings(settings.package_index), AUTHORITY: settings.ca.read_text(encoding="utf-8")}
