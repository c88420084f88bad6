"""What is said where a node cannot be worked on, of a real sshd: the cause, the node, and a line to mend it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.site import preflight
from common.errors import ProcessError
from tests.integration.site.conftest import Node

INSTALLER = (
    "useradd --create-home --shell /bin/sh installer && cp -r /root/.ssh ~installer/ && chown -R installer ~installer"
)


@pytest.fixture
def fresh(node: Node, tmp_path: Path) -> Node:
    """The node for a controller that has no connection to it yet."""
    return replace(node, state=tmp_path / "state")


@pytest.fixture(scope="module")
def installer(node: Node) -> str:
    node.run(INSTALLER)
    return "installer"


def refusal(node: Node, user: str = "root") -> str:
    result = node.play("preflight", node.site(user=user), preflight.PUBLISHED)
    with pytest.raises(ProcessError) as caught:
        result.require_success()
    return str(caught.value)


def test_a_missing_sudo(fresh: Node, installer: str) -> None:
    said = refusal(fresh, installer)
    assert (
        "there is no sudo on near, and installer is not root. Hint: run as root on near: `apt-get install sudo`" in said
    )


@pytest.mark.parametrize(
    ("sudo", "reason"),
    [
        ("sudo: a password is required", "sudo on near asks installer for a password"),
        ("installer is not in the sudoers file.", "sudo on near allows installer nothing"),
    ],
)
def test_a_sudo_that_refuses(fresh: Node, installer: str, sudo: str, reason: str) -> None:
    """The image has no sudo, so a program says what sudo says, and ends as it does."""
    fresh.run(f"printf '#!/bin/sh\\necho {sudo} >&2; exit 1\\n' > /usr/bin/sudo && chmod 755 /usr/bin/sudo")
    try:
        said = refusal(fresh, installer)
    finally:
        fresh.run("rm /usr/bin/sudo")
    line = "`echo 'installer ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/penstock`"
    assert f"{reason}. Hint: run as root on near: {line}" in said


def test_a_key_that_is_refused(fresh: Node) -> None:
    said = refusal(fresh, "nobody")
    line = f"`ssh-copy-id -i {fresh.key} nobody@{fresh.address}`"
    assert f"near refuses the SSH key of nobody. Hint: run {line}, or correct `ssh.user` and `ssh.private_key`" in said


def test_a_key_that_is_not_there(fresh: Node, tmp_path: Path) -> None:
    said = refusal(replace(fresh, key=tmp_path / "missing"))
    assert f"the key {tmp_path}/missing is not on this machine. Hint: correct `ssh.private_key`" in said


def test_a_host_key_that_has_changed(fresh: Node) -> None:
    known = fresh.state / "known_hosts"
    fresh.state.mkdir()
    other = fresh.key.with_suffix(".pub").read_text().split()[1]
    known.write_text(f"{fresh.address} ssh-ed25519 {other}\n")
    said = refusal(fresh)
    line = f"`ssh-keygen -f {known} -R {fresh.address}`"
    assert f"key of near is not the one of the first contact. Hint: if the node was installed anew, run {line}" in said


def test_a_node_without_python(fresh: Node) -> None:
    fresh.run("mv /usr/bin/python3 /usr/bin/hidden")
    try:
        said = refusal(fresh)
    finally:
        fresh.run("mv /usr/bin/hidden /usr/bin/python3")
    assert "there is no Python on near. Hint: run as root on near: `apt-get install python3`" in said
