"""The runtime of a machine, put together: its Docker Engine, its GPUs, its networks and its sandboxes."""

from __future__ import annotations

import resource
from functools import partial
from pathlib import Path

import structlog

from appliance.agent import descriptors
from appliance.agent.boot import boot
from appliance.agent.container_runtime import ContainerRuntime
from appliance.agent.docker import cores, engine_health, interfaces, node_info, packages, rdma, share_maintenance
from appliance.agent.docker.containers import ContainerLimits
from appliance.agent.docker.disk import DiskEnforcer
from appliance.agent.docker.egress_policy import EgressPolicy
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.engine_health import EngineHealth
from appliance.agent.docker.gang_network_manager import GangNetworkManager
from appliance.agent.docker.images import Images
from appliance.agent.docker.leases import Leases
from appliance.agent.docker.mount_checks import MountChecks
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.docker.supervisor import Supervisor
from appliance.agent.docker.terminal import Terminal
from appliance.agent.fd_store import FdStore, handed_over
from appliance.agent.listener import Strangers
from appliance.agent.port_forwarding import PortForwarder
from appliance.agent.reports.app_callers import AppCallerReporter
from appliance.agent.reports.denied_call_reporter import DeniedCallReporter
from appliance.agent.sandbox.seccomp_listener import SeccompListener
from appliance.agent.settings import Settings
from appliance.agent.site_nodes import SiteNodes
from appliance.agent.storages import Storages
from appliance.agent.supervision import every
from appliance.agent.tls import server_context
from appliance.agent.volume_folders import VolumeFolders
from appliance.gpu import accelerators
from common import egress
from common.disk_limit import DiskLimit
from common.messages import MAX_REASON
from common.protocol import NodeInfo

log = structlog.get_logger()


def build(settings: Settings, strangers: Strangers) -> ContainerRuntime:
    """Return what runs containers on this machine; raises PenstockError where it cannot."""
    limits = ContainerLimits(
        settings.pids_limit, _lockable_memory(), settings.container_log_mib, settings.container_log_files
    )
    storages = Storages(settings.storages, settings.storage_ids)
    mount_points = MountPoints(settings.mounts_folder, settings.mount_roots, storages)
    nodes = SiteNodes(settings.nodes_file)
    kinds, node_cores = node_info.kinds(settings), cores.of_node()
    gpus = accelerators.discover(kinds).without_last(settings.foreign_gpus)
    fabric = rdma.Rdma(settings.ib_address, settings.hcas, gpus.buses, limits.memlock)
    networks = interfaces.Interfaces()
    engine = DockerEngine(
        settings.docker_socket,
        mount_points,
        limits,
        settings.sandbox_socket,
        settings.cores_folder,
        hosts=nodes.hosts,
        site_files=partial(packages.show, settings.package_index, settings.ca, settings.packages_folder),
        rdma=fabric.needs,
        boot=boot(),
    )
    engine.negotiate()
    told = engine.info()
    has = node_info.take(settings, told, gpus, node_cores)
    log.info(
        "agent starts", node=has.name, gpus=len(has.gpus), simulated=bool(settings.simulated_gpus), port=settings.port
    )
    maintenance = share_maintenance.build(settings, gpus, kinds, told["CgroupDriver"])
    images = Images(engine, settings.registries, DiskLimit([Path(told["DockerRootDir"])], settings.disk_stop_percent))
    egress_policy = EgressPolicy(engine.default_bridge, [*map(egress.parse, settings.egress)], nodes.addresses)
    health = EngineHealth(engine.negotiate)
    leases = Leases(settings.lease_socket, settings.lease_users, below_steps=told["CgroupDriver"] == "cgroupfs")
    forwarder = PortForwarder(
        server_context(settings),
        settings.edges,
        bind=settings.bind,
        port_range=settings.port_range,
        strangers=strangers,
        most=descriptors.for_ports(descriptors.raise_limit()),
    )
    supervisor = Supervisor(
        engine,
        images,
        forwarder,
        shares=maintenance.shares,
        gang_networks=GangNetworkManager(engine, settings.address, mtu=settings.network_mtu),
        egress_policy=egress_policy,
        near=gpus.near,
        node_cores=node_cores,
        mount_checks=MountChecks(settings.mount_roots, storages),
        leases=leases,
    )
    kept = handed_over(settings.listen_pid, settings.listen_fds, settings.listen_fdnames)
    listener = SeccompListener(settings.sandbox_socket, FdStore(settings.notify_socket, kept))

    def node_info_now() -> NodeInfo:
        unready = health.reason or egress_policy.reason
        now: dict[str, object] = {"unready": unready[:MAX_REASON], "missing_storages": dict(storages.missing)}
        now |= {"rdma": not fabric.missing, "no_rdma": fabric.missing[:MAX_REASON], "hcas": list(fabric.hcas)}
        now["interfaces"] = list(networks.found)
        return maintenance.shares.describe(has).model_copy(update=now)

    def begin() -> None:
        egress_policy.keep()
        mount_points.begin()
        listener.start()

    def close() -> None:
        listener.close()
        maintenance.close()
        mount_points.close()
        engine.close()

    return ContainerRuntime(
        node_info=node_info_now,
        containers=supervisor,
        images=images,
        terminal=partial(Terminal, engine),
        volumes=VolumeFolders(settings.mount_roots, storages),
        begin=begin,
        tasks={
            **maintenance.tasks(supervisor),
            "disk": DiskEnforcer(engine.written_mib, supervisor.disk_limits, supervisor.end).run,
            "denied calls": DeniedCallReporter(settings, listener).run,
            "callers of apps": AppCallerReporter(settings, forwarder).run,
            "egress": partial(egress_policy.run, supervisor.changed.set),
            "leases": partial(leases.run, supervisor.leases, supervisor.withdraw),
            "storages": partial(storages.run, supervisor.changed.set),
            "fabric": partial(every, rdma.INTERVAL_S, partial(fabric.look, supervisor.changed.set)),
            "interfaces": partial(every, interfaces.INTERVAL_S, partial(networks.look, supervisor.changed.set)),
            "engine": partial(every, engine_health.INTERVAL_S, partial(health.look, supervisor.changed.set)),
            "list of containers": partial(every, settings.list_interval_s, supervisor.rebuild),
        },
        is_stuck=maintenance.arbiter.is_stuck,
        close=close,
        looks=maintenance.looks(),
    )


def _lockable_memory() -> int:
    """Return how many bytes a container may be allowed to lock: without limit where this machine lets root say so."""
    unlimited = resource.RLIM_INFINITY
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
    except (ValueError, OSError):
        log.warning("sessions can lock little memory", hint="give the agent and Docker the right CAP_SYS_RESOURCE")
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
