"""A dry run of a site's playbooks: what `python -c` runs on a reservoir node; prints counts of tasks by node as JSON.

The site comes on standard input. Where nothing was deployed yet, what Ansible reads on the controller is made in a
folder of its own, from the bundle, so that the deploy that follows finds a bare node.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from appliance.site import deployment, inventory, pki, playbook
from appliance.site.model import Site
from appliance.site.site_file import load
from common import files
from common.yaml_document import parse
from reservoir.intake.take import take
from reservoir.publication.publish import publish

SCRATCH = Path("/var/lib/dry-run")
BUNDLE = Path("/media/penstock")


def main() -> None:
    """Say what the playbooks would change."""
    site = load(parse(sys.stdin.read(), "site.yml"))
    try:
        state, root = (deployment.STATE, deployment.ROOT) if deployment.ROOT.is_dir() else _controller(site)
        hosts = inventory.build(site, version=version("penstock"), state=str(state), root=str(root))
        result = playbook.run("site", hosts, state=SCRATCH / "run", listen=lambda _: None, check=True)
        result.require_success()
        print(json.dumps({name: asdict(counts) for name, counts in result.nodes.items()}))
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


def _controller(site: Site) -> tuple[Path, Path]:
    """Make what a deploy makes on its controller before it runs a playbook."""
    state, root = SCRATCH / "site", SCRATCH / "reservoir"
    take(BUNDLE, root, trust_first=True)
    publish(root)
    pki.issue(site, state / "pki")
    for name in (deployment.PASSWORD_FILE, deployment.INDEX_PASSWORD_FILE, deployment.AUDIT_KEY_FILE):
        files.write(state / name, deployment.new_password() + "\n", 0o600)
    return state, root


if __name__ == "__main__":
    main()
