"""What people read where the container engine does not start their container."""

from __future__ import annotations

import pytest

from appliance.agent.docker.refusals import told

HEAD = "OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: "
FILE = "the image has a file there, or what is mounted is one"
MERGED = "/var/lib/docker/overlay2/4ac/merged"
MOUNTS = "/run/penstock/mounts/session-1/0"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            f'{HEAD}rootfs_linux.go:76: mounting "{MOUNTS}" to rootfs at "/bin/sh" caused: not a directory: unknown',
            f"nothing can be mounted at /bin/sh: {FILE}; choose another target",
        ),
        (
            f'{HEAD}error mounting "{MOUNTS}" to rootfs at "/data/in": mkdir {MERGED}/data/in: read-only file system',
            "nothing can be mounted at /data/in: read-only file system; choose another target",
        ),
        (
            f'{HEAD}mounting "{MOUNTS}" to rootfs at "{MERGED}/x" caused: what',
            "nothing can be mounted at /x; choose another target",
        ),
        (
            'exec: "bash": executable file not found in $PATH: unknown',
            'exec: "bash": executable file not found in $PATH: unknown',
        ),
        (
            'invalid mount config for type "bind": bind source path does not exist: /run/penstock/mounts/s-1/0',
            'invalid mount config for type "bind": bind source path does not exist: a folder of the node',
        ),
    ],
)
def test_no_path_of_the_node_is_told(said: str, expected: str) -> None:
    assert told(said) == expected
