"""What a session costs a program that computes: the same loop on the bare machine and in a session, one JSON line.

The session has a share of a (fake) GPU, so the preload library is in it and the agent's arbiter runs beside it. Both
loops take turns. On a machine that does other work too, only the time of the core can be compared: by the wall, a
session and a bare program then get different parts of the cores.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import uuid
from pathlib import Path
from statistics import median

import docker

from common.gpu.share import GpuShare
from common.protocol import ContainerSpec
from tests import once
from tests.fakes.cuda import build
from tests.fakes.cuda.clients import build_client, build_shim, gpu_uuid
from tests.integration.agent import gpus
from tests.integration.agent.calls import launch
from tests.integration.agent.conftest import BUSYBOX, free_port, make_agent, make_authority

ROUNDS = 20
AIM_PERCENT = 1.0


def measure(folder: Path, engine: docker.DockerClient, image: str) -> dict[str, object]:
    """Return the medians in ms and what the session costs in per cent, on an agent of its own."""
    libraries = folder / "libraries"
    libraries.mkdir()
    build(libraries)
    build_client(libraries, libraries / "libcuda.so.1")
    parts = gpus.Parts(libraries, build_shim(folder / "shim", "release"))
    loop = libraries / "loop"
    source = Path(__file__).with_name("loop.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", loop, source], check=True)
    gpus.make_image(engine, image, parts, BUSYBOX)
    (folder / "node").mkdir()
    # nobody takes the heartbeats: the agent goes on
    agent = make_agent(make_authority(folder / "pki"), free_port(), folder / "node")
    gpus.equip(agent, parts, folder / "node")
    identity = f"bench-{uuid.uuid4().hex[:12]}"
    spec = ContainerSpec(
        id=identity,
        session_id=identity,
        session_name="bench",
        project="bench",
        user="bench",
        image=image,
        command=["sleep"],
        args=["600"],
        gpus=[GpuShare(uuid=gpu_uuid(0), index=0, milli=250)],
    )
    agent.start(subprocess.Popen)
    bare: list[tuple[int, ...]] = []
    held: list[tuple[int, ...]] = []
    try:
        with agent.client() as client:
            launch(client, spec)
            container = engine.containers.get(f"penstock-{identity}")
            for _ in range(ROUNDS):
                bare.append(_times(subprocess.run([loop], check=True, capture_output=True).stdout))
                held.append(_times(container.exec_run([str(loop)]).output))
            client.delete(f"/v1/containers/{identity}?grace_s=0").raise_for_status()
    finally:
        agent.stop()
    wall, core = (
        (median(ours) / median(theirs) - 1) * 100
        for ours, theirs in zip(zip(*held, strict=True), zip(*bare, strict=True), strict=True)
    )
    return {
        "bench": "overhead",
        "rounds": ROUNDS,
        "bare_ms": round(median(times[0] for times in bare) / 1e6, 2),
        "session_ms": round(median(times[0] for times in held) / 1e6, 2),
        "overhead_percent": round(wall, 2),
        "overhead_of_core_percent": round(core, 2),
        "aim_percent": AIM_PERCENT,
    }


def _times(output: object) -> tuple[int, ...]:
    """Read the ns by the wall and of the core."""
    assert isinstance(output, bytes)
    return tuple(map(int, output.split()))


def main() -> None:
    """Measure in a folder and with an image that go away at the end."""
    once.begin()
    engine = docker.from_env()
    image = f"penstock-bench/gpu:{uuid.uuid4().hex[:12]}"
    try:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(measure(Path(name), engine, image)))
    finally:
        engine.images.remove(image, force=True)
        engine.close()
        once.end()


if __name__ == "__main__":
    main()
