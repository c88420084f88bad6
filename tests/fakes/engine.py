"""The engine `null`: containers that exist only in memory, so that tests need no machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.engine.base import AgentAddress, TerminalSize
from common.audit_protocol import AuditHead, AuditHeads
from common.errors import ForbiddenError, NotFoundError, PenstockError
from common.protocol import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    ExecControl,
    GpuShares,
    ImageState,
    ImageStatus,
)
from common.storage_protocol import FolderRemoval, FolderState, StorageState


class EchoTerminal:
    """A terminal that shows what is typed until it is told `exit`."""

    def __init__(self) -> None:
        """Start with nothing typed."""
        self._frames: asyncio.Queue[bytes | str] = asyncio.Queue()

    async def send(self, frame: bytes | str) -> None:
        """Show what was typed."""
        if frame == b"exit\n":
            await self._frames.put(ExecControl(type="exit", code=0).model_dump_json())
        elif isinstance(frame, bytes):
            await self._frames.put(frame)

    async def __aiter__(self) -> AsyncIterator[bytes | str]:
        """Return the frames up to the one that says the command has ended."""
        while True:
            frame = await self._frames.get()
            yield frame
            if isinstance(frame, str):
                return


class FakeEngine:
    """Keeps containers in a dictionary. `failure` is raised by every call while it is set.

    `images` holds what is answered to pulls, by the image's reference, and `refuse_storage` by the names of nodes why
    what mounts anything does not start there.
    """

    def __init__(self) -> None:
        """Start with no containers."""
        self.containers: dict[tuple[str, str], ContainerState] = {}
        self.specs: dict[str, ContainerSpec] = {}
        self.output: dict[str, bytes] = {}
        self.images: dict[str, ImageState] = {}
        self.folders: set[str] = set()
        self.heads: dict[str, list[AuditHead]] = {}
        self.mounted = True
        self.used_mib: int | None = None
        self.without_storage: set[str] = set()
        self.refuse_storage: dict[str, str] = {}
        self.stuck = ""
        self.calls: list[tuple[str, str, str]] = []
        self.failure: PenstockError | None = None
        self.first_status = ContainerStatus.RUNNING

    async def probe(self, agent: AgentAddress) -> None:
        """Answer."""
        self._note("probe", agent, "")

    async def launch(self, agent: AgentAddress, spec: ContainerSpec) -> ContainerState:
        """Keep the container; the same one again is no change."""
        self._note("launch", agent, spec.id)
        self.specs[spec.id] = spec
        if spec.mounts and (reason := self.refuse_storage.get(agent.name)):
            status = ContainerStatus.FAILED
            return ContainerState(id=spec.id, session_id=spec.session_id, status=status, error=reason, lost=True)
        state = ContainerState(id=spec.id, session_id=spec.session_id, status=self.first_status, gpus=spec.gpus)
        return self.containers.setdefault((agent.name, spec.id), state)

    async def terminate(self, agent: AgentAddress, container_id: str, grace_s: int) -> None:
        """Forget the container."""
        self._note("terminate", agent, container_id)
        self.containers.pop((agent.name, container_id), None)

    async def resize(self, agent: AgentAddress, container_id: str, shares: GpuShares) -> ContainerState:
        """Keep the container with its new shares."""
        self._note("resize", agent, container_id)
        known = self.containers.get((agent.name, container_id))
        if known is None:
            raise NotFoundError(f"no container {container_id}", hint="launch it")
        state = known.model_copy(update={"gpus": list(shares.gpus)})
        self.containers[agent.name, container_id] = state
        return state

    async def pull(self, agent: AgentAddress, reference: str) -> ImageState:
        """Tell what a test has put in for the image; other images are there at once."""
        self._note("pull", agent, reference)
        known = ImageState(reference=reference, status=ImageStatus.READY, digest="sha256:0", size=1, pulled=1)
        return self.images.get(reference, known)

    async def storage(self, agent: AgentAddress, root: str) -> StorageState:
        """Return the folders that a test has put there; a node of `without_storage` refuses, as one of Kubernetes."""
        self._note("storage", agent, root)
        self._check_storage(agent)
        folders = [FolderState(folder=folder, used_mib=self.used_mib) for folder in sorted(self.folders)]
        return StorageState(mounted=self.mounted, folders=folders)

    async def remove_folder(self, agent: AgentAddress, folder: str) -> FolderRemoval:
        """Begin to remove a folder, which is gone when it is asked for again; `stuck` is why that fails."""
        self._note("remove folder", agent, folder)
        self._check_storage(agent)
        known = {name for name in self.folders if folder.endswith(f"/{name}")}
        if not known or not self.stuck:
            self.folders -= known
        return FolderRemoval(there=bool(known), mounted=self.mounted, error=self.stuck if known else "")

    async def audit_heads(self, agent: AgentAddress) -> AuditHeads:
        """Return what a test has put in for the node."""
        self._note("audit heads", agent, "")
        return AuditHeads(heads=self.heads.get(agent.name, []))

    async def logs(
        self, agent: AgentAddress, container_id: str, *, follow: bool, tail: int | None
    ) -> AsyncIterator[bytes]:
        """Return what a test has put in."""
        self._note("logs", agent, container_id)
        if (agent.name, container_id) not in self.containers:
            raise NotFoundError(f"no container {container_id}", hint="launch it")
        yield self.output.get(container_id, b"")

    @asynccontextmanager
    async def terminal(
        self, agent: AgentAddress, container_id: str, command: list[str], *, tty: TerminalSize | None, apart: bool
    ) -> AsyncIterator[EchoTerminal]:
        """Echo what is typed."""
        self._note("terminal", agent, container_id)
        yield EchoTerminal()

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _check_storage(self, agent: AgentAddress) -> None:
        if agent.name in self.without_storage:
            raise ForbiddenError(f"{agent.name} has no folders that sessions may mount")

    def _note(self, call: str, agent: AgentAddress, container_id: str) -> None:
        self.calls.append((call, agent.name, container_id))
        if self.failure:
            raise self.failure
