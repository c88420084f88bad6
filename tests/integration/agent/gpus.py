"""A node whose GPUs are not there: fake driver and NVML, handed to containers by a plugin, held by the real shim."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import docker

from appliance.gpu.share_files import LimitsFile
from tests.fakes import accelerator
from tests.fakes.cuda import Machine
from tests.fakes.cuda.clients import Client, gpu_uuid
from tests.integration.agent.conftest import Agent

MEMORY_MIB = 8192
TRAP = "/opt/a/trap/limits"
"""A link in the image: a volume that is mounted there comes to lie over the limits."""


@dataclass(frozen=True)
class Parts:
    """What containers have: the folder of the fake libraries and the programs that use them, and the shim."""

    libraries: Path
    shim: Path


def make_image(engine: docker.DockerClient, reference: str, parts: Parts, busybox: Path) -> None:
    """Make an image of a static shell and the C library of this machine, for the fake libraries to run on."""
    repository, tag = reference.split(":")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for applet in ("sh", "cat", "echo", "sleep", "env", "ls", "id", "mv"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        link = tarfile.TarInfo(TRAP.lstrip("/"))
        link.type, link.linkname = tarfile.SYMTYPE, "/run/penstock/limits"
        archive.addfile(link)
        for library in _system_libraries([parts.libraries / "client", parts.libraries / "smi", parts.shim]):
            archive.add(library.resolve(), str(library).lstrip("/"))
    engine.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)


def equip(agent: Agent, parts: Parts, folder: Path, gpus: int = 2) -> Machine:
    """Give a node that is not started yet so many fake GPUs, a plugin that hands them out, and the shim."""
    state = folder / "machine"
    state.mkdir()
    accelerator.install(folder / "plugins")
    agent.environment |= {
        "PENSTOCK_AGENT_SIMULATED_GPUS": "0",
        "PENSTOCK_AGENT_ACCELERATORS": accelerator.NAME,
        "PENSTOCK_AGENT_GPU_LIBRARY": str(parts.shim),
        "PENSTOCK_AGENT_METRICS_INTERVAL_S": "0.5",
        "PYTHONPATH": str(folder / "plugins"),
        "LD_LIBRARY_PATH": str(parts.libraries),
        "FAKE_ACCELERATOR_NVML": "1",
        "FAKE_ACCELERATOR_LIBRARIES": str(parts.libraries),
        "FAKE_ACCELERATOR_STATE": str(state),
        "FAKE_GPU_STATE": str(state / "state"),
        "FAKE_GPU_COUNT": str(gpus),
        "FAKE_GPU_MEMORY_MIB": str(MEMORY_MIB),
        "FAKE_GPU_CUDA": "13050",
    }
    return Machine(parts.libraries, state / "state")


def gpu_share(milli: int, index: int = 0) -> dict[str, object]:
    """A share of a fake GPU."""
    return {"uuid": gpu_uuid(index), "index": index, "milli": milli}


def program(parts: Parts, identity: str, user: int = 0) -> Client:
    """Start the client in a container that runs."""
    command = ["docker", "exec", "-i", "-u", str(user), f"penstock-{identity}", parts.libraries / "client", "proc:0"]
    engine = {key: value for key, value in os.environ.items() if key == "DOCKER_HOST"}
    return Client([str(word) for word in command], {"PATH": "/usr/bin:/bin", **engine})


def smi(parts: Parts, engine: docker.DockerClient, identity: str) -> list[tuple[int, ...]]:
    """What the container sees of each GPU: index, total, used and free memory in MiB."""
    result = engine.containers.get(f"penstock-{identity}").exec_run([str(parts.libraries / "smi")])
    assert isinstance(result.output, bytes)
    assert result.exit_code == 0, result.output
    return [tuple(map(int, line.split())) for line in result.output.decode().splitlines()]


def limits(agent: Agent, identity: str) -> LimitsFile:
    """The limits file of a container."""
    return LimitsFile(Path(agent.environment["PENSTOCK_AGENT_GPU_FOLDER"]) / identity / "limits/limits")


def _system_libraries(programs: Iterable[Path]) -> set[Path]:
    found = set()
    for each in programs:
        said = subprocess.run(["ldd", each], capture_output=True, text=True, check=True).stdout
        found |= {Path(path) for path in re.findall(r"(/lib\S*/\S+\.so\S*)", said)}
    return found
