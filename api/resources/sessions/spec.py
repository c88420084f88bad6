"""The container that an agent is asked for. Pure: always the same for the same attempt of the same session."""

from __future__ import annotations

from api.resources.sessions import mounts, networks, ways
from api.tables.nodes import Node
from api.tables.sessions import Container, Session
from common.gpu.share import GpuShare
from common.messages import protocol_of
from common.protocol import ContainerSpec, GangNetwork, Pull
from common.sandbox import Sandbox

MASTER_PORT = "29500"
"""Where the first container listens for the others, if its user names no other port: what torch.distributed uses."""

APP_PATH = "PENSTOCK_APP_PATH"


def spec_of(session: Session, container: Container, *, named_apps: bool = False) -> ContainerSpec:
    """Return one of the containers that a session wants; with `named_apps` each app has a name of its own."""
    return ContainerSpec(
        id=session.container_id(container.rank),
        session_id=str(session.id),
        session_name=session.name,
        project=session.project.name,
        user=session.user_name,
        image=session.reference,
        command=session.command,
        args=session.args,
        environment={
            **_meeting(session, container),
            **ways.environment(session),
            **session.environment,
            **_gang(session, container),
            **_apps(session, named=named_apps),
        },
        gpus=[GpuShare(uuid=share.uuid, index=share.index, milli=share.milli) for share in container.gpu_shares],
        cpu_milli=session.cpu_milli,
        memory_mib=session.memory_mib,
        shm_mib=session.shm_mib,
        disk_mib=session.disk_mib,
        mounts=mounts.of_container(session.mounts),
        ports=[service.port for service in session.services],
        pull=Pull.NEVER if session.local_image else Pull.MISSING,
        network=_network(session, container),
        sandbox=_sandbox(session),
        rdma=session.rdma,
    )


def protocol(session: Session) -> int:
    """Return the protocol that agents have to speak to run a session that has no places yet."""
    return protocol_of(spec_of(session, Container(rank=0, gpu_shares=[])))


def _sandbox(session: Session) -> Sandbox | None:
    """Return the sandbox of a session; one without rules is none to the agent."""
    if not session.sandbox_rules:
        return None
    return Sandbox.model_validate({"name": session.sandbox, "rules": session.sandbox_rules})


def _network(session: Session, container: Container) -> GangNetwork | None:
    """Return the network on which a container meets the others; None where it is the only one."""
    if session.network is None:
        return None
    number = session.network
    others = {_reached(session, item.node) for item in session.containers if item.node_id != container.node_id}
    # where it may come to have containers: who is there by now is not told again
    others |= {address for name, address in session.reach.items() if name != container.node.name}
    return GangNetwork(
        number=networks.vxlan(number),
        subnet=networks.subnet(number),
        address=networks.address(number, container.rank),
        name=_host(session, container.rank),
        hosts={_host(session, rank): networks.address(number, rank) for rank in range(_most(session))},
        peers=sorted(others),
        local=session.interfaces.get(container.node.name, ("", ""))[1],
    )


def _reached(session: Session, node: Node) -> str:
    """Return where the containers of a node are reached by those of others."""
    return session.interfaces[node.name][1] if node.name in session.interfaces else node.address


def _meeting(session: Session, container: Container) -> dict[str, str]:
    """Return what programs that run in several containers read, such as torch.distributed and torchrun."""
    if session.network is None:
        return {}
    first = str(networks.address(session.network, 0))
    if session.max_replicas:
        return {
            "MASTER_ADDR": first,
            "MASTER_PORT": MASTER_PORT,
            "PET_NNODES": f"{session.min_replicas}:{session.max_replicas}",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{first}:{MASTER_PORT}",
            "PET_RDZV_ID": f"{session.name}-{session.attempt}",
            # the first container is there from the beginning to the end
            "PET_RDZV_CONF": f"is_host={int(container.rank == 0)}",
        }
    replicas, rank = str(session.replicas), str(container.rank)
    return {
        "MASTER_ADDR": first,
        "MASTER_PORT": MASTER_PORT,
        "WORLD_SIZE": replicas,
        "RANK": rank,
        "PET_NNODES": replicas,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": MASTER_PORT,
    }


def _gang(session: Session, container: Container) -> dict[str, str]:
    """Return what the containers of one session need to know of each other."""
    if _most(session) == 1:
        return {}
    hosts = ",".join(_host(session, rank) for rank in range(_most(session)))
    found = {"PENSTOCK_RANK": str(container.rank), "PENSTOCK_SIZE": str(session.replicas), "PENSTOCK_HOSTS": hosts}
    if container.node is not None and (chosen := session.interfaces.get(container.node.name)):
        found["PENSTOCK_INTERFACE"] = chosen[0]
    if not session.max_replicas:
        return found
    least, most = str(session.min_replicas), str(session.max_replicas)
    return {**found, "PENSTOCK_MIN_SIZE": least, "PENSTOCK_MAX_SIZE": most}


def _apps(session: Session, *, named: bool) -> dict[str, str]:
    """Return what an app needs to know of its path: the edge takes it away, and links and cookies begin with it."""
    paths = {f"{APP_PATH}_{service.port}": "/" if named else f"/{service.path}/" for service in session.services}
    return ({APP_PATH: next(iter(paths.values()))} if paths else {}) | paths


def _most(session: Session) -> int:
    """Return how many containers a session may come to have."""
    return max(session.replicas, session.max_replicas)


def _host(session: Session, rank: int) -> str:
    return f"{session.name}-{rank}"
