"""Docker as a site wants it: where it keeps its things, and what limits sessions in the kernel of their node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.site.model import Site
from tests.role_modules import role_module
from tests.unit.appliance.site.verification.evidence import CONFINED, bad, of, verdict

module = role_module("evidence/library/node_evidence.py")

SECCOMP = ["name=seccomp,profile=builtin", "name=cgroupns"]


def docker(security: list[str]) -> dict[str, Any]:
    return {"version": "26.1.5", "driver": "overlay2", "root": "/var/lib/docker", "security": security}


def modules(**special: Any) -> dict[str, Any]:
    return {"apparmor": True, "selinux": "", "container": False, **special}


@pytest.mark.parametrize(
    ("security", "kernel", "state", "said"),
    [
        (CONFINED, modules(), "ok", "containers are limited by AppArmor and seccomp"),
        (SECCOMP, modules(apparmor=False), "ok", "containers are limited by seccomp"),
        (SECCOMP, modules(container=True), "ok", "containers are limited by seccomp"),
        (
            *(SECCOMP, modules(), "warn"),
            "containers are limited by seccomp; AppArmor is on in the kernel, and Docker does not use it",
        ),
        (
            *(SECCOMP, modules(apparmor=False, selinux="enforcing"), "warn"),
            "containers are limited by seccomp; SELinux enforces its policy",
        ),
        (SECCOMP, modules(apparmor=False, selinux="permissive"), "ok", "containers are limited by seccomp"),
        (["name=apparmor"], modules(), "fail", "containers are limited by AppArmor"),
        (["name=apparmor", "name=seccomp,profile=unconfined"], modules(), "fail", "containers are limited by AppArmor"),
        ([], modules(apparmor=False), "fail", "containers are limited by nothing"),
    ],
)
def test_what_limits_sessions_is_told_and_judged(
    site: Site, evidence: dict[str, Any], security: list[str], kernel: dict[str, Any], state: str, said: str
) -> None:
    evidence["worker1"].update(docker=docker(security), security_modules=kernel)
    check = of(verdict(site, evidence), "worker1", "confinement")
    assert (check.state, check.evidence) == (state, said)
    assert bool(check.hint) == (state != "ok")


def test_a_docker_that_is_silent_is_one_fault(site: Site, evidence: dict[str, Any]) -> None:
    evidence["worker1"]["docker"] = None
    assert [name for _, name, _ in bad(site, evidence)] == ["container engine answers"]


def test_a_docker_that_keeps_its_things_elsewhere_is_a_fault(site: Site, evidence: dict[str, Any]) -> None:
    elsewhere = {"nodes": [node.model_copy(update={"docker_root": "/data/docker"}) for node in site.nodes]}
    site = site.model_copy(update=elsewhere)
    assert of(verdict(site, evidence), "worker1", "docker").evidence == (
        "Docker 20.10.24, overlay2, which keeps its things at /var/lib/docker and not at /data/docker"
    )
    evidence["worker1"]["docker"]["root"] = "/data/docker"
    assert of(verdict(site, evidence), "worker1", "docker").ok


def test_a_node_says_what_its_kernel_and_docker_have(tmp_path: Path) -> None:
    assert module.security_modules(tmp_path) == {"apparmor": False, "selinux": "", "container": False}
    for path, text in (("sys/module/apparmor/parameters/enabled", "Y\n"), ("sys/fs/selinux/enforce", "0")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    (tmp_path / ".dockerenv").touch()
    assert module.security_modules(tmp_path) == {"apparmor": True, "selinux": "permissive", "container": True}
    said = module.docker(0, '{"ServerVersion": "26.1.5", "SecurityOptions": ["name=apparmor"]}')
    assert said["security"] == ["name=apparmor"]
    assert module.docker(0, '{"ServerVersion": "26.1.5", "SecurityOptions": null}')["security"] == []
