"""What the role of the driver sees on a node: recorded outputs of dkms and apt, and trees like sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.role_modules import role_module

nvidia_node = role_module("nvidia_driver/library/nvidia_node.py")

KERNEL = "6.1.0-56-amd64"
TUPLE = ["nvidia-kernel-dkms", "libcuda1"]
# as Debian 12 has them with DKMS 3, and as older ones say it
DKMS = "nvidia-current/535.309.01, 6.1.0-56-amd64, x86_64: installed\nzfs/2.1.11, 6.1.0-56-amd64, x86_64: installed\n"
OLD_DKMS = "nvidia-current, 535.309.01, 6.1.0-56-amd64, x86_64: installed\n"
SHOWN = "ii \tlibcuda1\t535.309.01-0+deb12u1\nii \tnvidia-kernel-dkms\t535.309.01-0+deb12u1\n"
PLANNED = """\
Inst libcuda1 [535.261.03-1] (535.309.01-0+deb12u1 Debian-Security:12/oldstable-security [amd64])
Inst nvidia-kernel-dkms (535.309.01-0+deb12u1 Debian-Security:12/oldstable-security [amd64])
Conf libcuda1 (535.309.01-0+deb12u1 Debian-Security:12/oldstable-security [amd64])
"""
REFUSED = """\
The following packages have unmet dependencies:
 nvidia-open-kernel-dkms : Depends: firmware-nvidia-gsp (= 535.261.03) but it is not going to be installed
E: Unable to correct problems, you have held broken packages.
"""


class Node:
    """A node whose programs say what a test lets them say; one that was not named is not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: dict[str, tuple[int, str]] = {}

    def device(self, name: str, vendor: str, kind: str) -> None:
        self.write(f"sys/bus/pci/devices/{name}/vendor", vendor)
        self.write(f"sys/bus/pci/devices/{name}/class", kind)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n")

    def run(self, command: list[str]) -> tuple[int, str]:
        return self.said.get(command[0], (127, "no such file"))

    def look(self, packages: list[str] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = nvidia_node.look(packages or [], TUPLE, self.run, self.root, KERNEL)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with a GPU, and with a driver that is built and loaded."""
    made = Node(tmp_path)
    made.device("0000:01:00.0", "0x10de", "0x030200")
    made.write("sys/module/nvidia/version", "535.309.01")
    made.said = {"dkms": (0, DKMS), "dpkg-query": (0, SHOWN), "docker": (0, "")}
    return made


def test_gpus_and_nvswitches_are_counted_and_other_devices_are_not(node: Node) -> None:
    node.device("0000:02:00.0", "0x10de", "0x030000")
    node.device("0000:02:00.1", "0x10de", "0x040300")  # the sound of a card
    for slot in (3, 5, 6):
        node.device(f"0000:0{slot}:00.0", "0x10de", "0x068000")
    node.device("0000:04:00.0", "0x1a03", "0x030000")  # the console of the board
    assert (node.look()["gpus"], node.look()["switches"]) == (2, 3)


@pytest.mark.parametrize("said", [DKMS, OLD_DKMS])
def test_a_driver_that_is_built_and_loaded_needs_nothing(node: Node, said: str) -> None:
    node.said["dkms"] = 0, said
    found = node.look()
    assert (found["reboot"], found["fault"]) == ("", "")
    assert found["versions"] == {"libcuda1": "535.309.01", "nvidia-kernel-dkms": "535.309.01"}


@pytest.mark.parametrize("said", ["", DKMS.replace("535.309.01", "535.261.03"), DKMS.replace("installed", "added")])
def test_what_dkms_has_not_built_no_restart_mends(node: Node, said: str) -> None:
    node.said["dkms"] = 0, said
    assert node.look()["fault"] == "DKMS has built 535.309.01 for no kernel"


def test_a_driver_of_another_kernel_waits_for_its_restart(node: Node) -> None:
    node.said["dkms"] = 0, DKMS.replace("-56-", "-57-")
    found = node.look()
    assert (found["fault"], found["reboot"]) == (
        "",
        "535.309.01 is built for 6.1.0-57-amd64, and 6.1.0-56-amd64 runs",
    )


def test_another_module_that_is_loaded_waits_for_a_restart(node: Node) -> None:
    node.write("sys/module/nvidia/version", "535.261.03")
    assert node.look()["reboot"] == "535.261.03 is loaded, and 535.309.01 is installed"


def test_nouveau_waits_for_a_restart(node: Node) -> None:
    (node.root / "sys/module/nouveau").mkdir()
    assert node.look()["reboot"] == "nouveau has the GPUs"


def test_a_node_without_gpus_is_never_restarted_nor_at_fault(node: Node) -> None:
    node.device("0000:01:00.0", "0x1a03", "0x030000")
    node.said["dkms"] = 127, ""
    assert (node.look()["gpus"], node.look()["reboot"], node.look()["fault"]) == (0, "", "")


def test_what_apt_would_change_is_told(node: Node) -> None:
    node.said["apt-get"] = 0, PLANNED
    assert node.look(TUPLE)["pending"] == ["libcuda1", "nvidia-kernel-dkms"]
    assert node.look()["pending"] == []


def test_what_apt_cannot_install_is_told_in_its_words(node: Node) -> None:
    node.said["apt-get"] = 100, REFUSED
    assert "Depends: firmware-nvidia-gsp (= 535.261.03)" in node.look(TUPLE)["refused"]


def test_sessions_are_told_apart_from_a_docker_that_is_silent(node: Node) -> None:
    node.said["docker"] = 0, "train of ann\ntrain of ann\n"
    assert node.look()["sessions"] == ["train of ann"]
    node.said["docker"] = 1, "Cannot connect to the Docker daemon"
    assert node.look()["sessions"] is None
    node.said["docker"] = 127, ""
    assert node.look()["sessions"] == [], "where there is no Docker there are none"


def test_sessions_are_known_by_the_labels_that_the_agent_gives_them() -> None:
    from appliance.agent import labels

    assert f'"{labels.LABEL_SESSION_NAME}"' in nvidia_node.SESSION
    assert f'"{labels.LABEL_USER}"' in nvidia_node.SESSION
