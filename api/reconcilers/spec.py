"""The container that an agent is asked for. Pure: always the same for the same attempt of the same session."""

from __future__ import annotations

from api.sessions.models import Container, Kind, Session
from appliance.agent.protocol import ContainerSpec, GpuGrant, Mount, Pull
from appliance.sandbox import Sandbox


def spec_of(session: Session, container: Container) -> ContainerSpec:
    """Return one of the containers that a session wants."""
    return ContainerSpec(
        id=session.container_id(container.rank),
        session_id=str(session.id),
        session_name=session.name,
        project=session.project.name,
        user=session.user_name,
        image=session.reference,
        command=session.command,
        args=session.args,
        environment={**session.environment, **_gang(session, container)},
        gpus=[GpuGrant(uuid=grant.uuid, index=grant.index, milli=grant.milli) for grant in container.grants],
        cpu_milli=session.cpu_milli,
        memory_mib=session.memory_mib,
        shm_mib=session.shm_mib,
        interactive=session.kind is Kind.INTERACTIVE,
        mounts=[Mount(**mount) for mount in session.mounts],
        ports=[service.port for service in session.services],
        pull=Pull.NEVER if session.local_image else Pull.MISSING,
        sandbox=_sandbox(session),
    )


def _sandbox(session: Session) -> Sandbox | None:
    """Return the sandbox of a session; one without rules is none to the agent."""
    if not session.sandbox_rules:
        return None
    return Sandbox.model_validate({"name": session.sandbox, "rules": session.sandbox_rules})


def _gang(session: Session, container: Container) -> dict[str, str]:
    """Return what the containers of one session need to know of each other."""
    if session.size == 1:
        return {}
    hosts = ",".join(item.node.address for item in session.containers)
    return {"PENSTOCK_RANK": str(container.rank), "PENSTOCK_SIZE": str(session.size), "PENSTOCK_HOSTS": hosts}
