"""A node that answers SSH, of the product's image for labs, and the product's playbooks run on it."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.site import inventory, playbook, preflight
from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse
from reservoir.bundle import bundles
from reservoir.contents.bundle import Bundle
from tests.integration.reservoir.conftest import (  # noqa: F401
    Machine,
    docker,
    listed,
    node_image,
    node_images,
    product_bundle,
)

ROOT = Path(__file__).parents[3]
SITE = """\
name: north
ssh: {{user: {user}, private_key: {key}}}
nodes:
  - {{name: far, address: 192.0.2.1, roles: [{others}, storage]}}
  - {{name: near, address: {address}, roles: [{roles}], {more}}}
storage: [{{kind: nfs, name: data, path: /srv/data, mount_path: /mnt/some-data}}]
"""
UNIQUE = ("reservoir", "master")


@dataclass(frozen=True)
class Node(Machine):
    """The node, with a key that root may log in with."""

    address: str
    key: Path
    state: Path
    bundle: Bundle

    def site(self, roles: str = "worker", more: str = "agent_port: 6001", user: str = "root") -> Site:
        """Return a site of this node and one that is far away."""
        others = ", ".join(role for role in UNIQUE if role not in roles)
        text = SITE.format(user=user, key=self.key, others=others, address=self.address, roles=roles, more=more)
        return load(parse(text, "site.yml"))

    def play(self, name: str, site: Site, publish: tuple[str, ...]) -> playbook.Result:
        """Run one of the product's playbooks on this node alone, as a deploy does."""
        hosts = inventory.build(site, version="1", state=str(self.state), root=str(self.state))
        asked = preflight.with_questions(hosts, site, [self.bundle], ROOT / "roles")["all"]
        asked["hosts"] = {"near": asked["hosts"]["near"]}
        for group in asked["children"].values():
            group["hosts"].pop("far", None)
        return playbook.run(name, {"all": asked}, state=self.state, listen=lambda _: None, publish=publish)

    def problems(self, **changes: Any) -> dict[str, str]:
        """Return what the preflight of a deploy finds here, without what a container is no good node for."""
        site = self.site(**changes)
        result = self.play("preflight", site, preflight.PUBLISHED)
        result.require_success()
        found = preflight.unfit(preflight.table(site, self.bundle, result.published))
        return {problem.where.removeprefix("near: "): str(problem) for problem in found.get("near", ())}


@pytest.fixture(scope="module")
def node(product_bundle: Path, node_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:  # noqa: F811
    folder = tmp_path_factory.mktemp("controller")
    key = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    network = docker("network", "create", "--internal", f"penstock-test-{uuid.uuid4().hex[:8]}")
    media = f"{product_bundle}:/media/penstock:ro"
    # as on a machine, root sees what the processes of others have open, and the agent may do what it has to
    options = ["--cap-add", "SYS_PTRACE", "--cap-add", "SYS_ADMIN", "--network", network, "--volume", media]
    identity = docker("run", "--detach", *options, node_image, "sleep", "infinity")
    try:
        address = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", identity)
        listed = bundles.read_signed(product_bundle, None).bundle
        node = Node(identity, address, key, folder / "state", listed)
        public = key.with_suffix(".pub").read_text().strip()
        node.run(f"mkdir -p -m 700 /run/sshd /root/.ssh && echo '{public}' > /root/.ssh/authorized_keys")
        node.run("ssh-keygen -A && /usr/sbin/sshd")
        # it leaves its caller before it listens
        node.run("until grep -q ':0016 ' /proc/net/tcp; do sleep 0.1; done")
        yield node
    finally:
        docker("rm", "--force", "--volumes", identity, check=False)
        docker("network", "rm", network, check=False)
