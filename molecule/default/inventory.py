"""Write what the controller of a site has: certificates, the administrators' passwords, and the inventory.

Molecule runs Ansible beside the node instead of on it, so the nodes are reached through Docker and the files of the
publication are copies below `build/molecule`.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from appliance.site import pki
from appliance.site.inventory import build
from appliance.site.site_file import load
from common.yaml_document import parse

ROOT = Path(__file__).parents[2]
STATE = ROOT / "build/molecule"


def main() -> None:
    """Write everything below `build/molecule`."""
    path = ROOT / "molecule/site.yml"
    site = load(parse(path.read_text(), str(path)))
    pki.issue(site, STATE / "pki")
    for password in (STATE / "admin-password", STATE / "index-password", STATE / "audit-key"):
        if not password.exists():
            password.write_text(f"{secrets.token_hex(8)}A1!")
    version = json.loads((STATE / "bundle.json").read_text())["version"]
    inventory = build(site, version=version, state=str(STATE))
    for node in site.nodes:
        inventory["all"]["hosts"][node.name] |= {
            "ansible_connection": "community.docker.docker",
            "ansible_host": f"penstock-{site.name}-{node.name}",
            "package_source_key": str(STATE / "keys/apt.asc"),
            "package_source_preferences": str(STATE / f"preferences/{node.release}-amd64.pref"),
            "package_source_digest": "molecule",
            "control_api_images": str(STATE / "index.json"),
        }
    (STATE / "hosts.json").write_text(json.dumps(inventory))


if __name__ == "__main__":
    main()
