"""The page of settings, written from the models of the services: `python -m tools.settings_page`.

A unit test holds `docs/settings.md` against what the models say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from appliance.site.audit import Audit
from appliance.site.gpu import SharedGpus
from appliance.site.health import Alerts, Health
from appliance.site.kubernetes import KubernetesCluster
from appliance.site.model import Disk, SimulatedGpus, TakingOver
from appliance.site.slurm import SlurmNode, SlurmSettings
from common.settings.backup import BackupSettings
from common.settings.control_api import ControlApiSettings
from common.settings.edge import EdgeSettings
from common.settings.images import ImageSettings
from common.settings.logs import LogSettings
from common.settings.monitoring import MonitoringSettings
from common.settings.node_agent import LocationSettings, NodeAgentSettings
from common.settings.package_index import PackageIndexSettings
from common.settings.repair import RepairSettings
from common.settings.sessions import SessionSettings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """\
# Settings

What a site may set of its services, in `site.yml`. Each key, with type, range and default, stands in a model of
`common/settings/`, from which this page is made. `penstock site check` names what is wrong with file, line and hint.
What is not said has the default. Names that end in `_s` are seconds.

The control API also reads `/etc/penstock/api.local.env` on the master, which deploys leave alone and which wins over
`site.yml`. There a setting is a variable, `PENSTOCK_API_` and its name in capital letters
(`PENSTOCK_API_METRICS_KEEP_S`); `systemctl restart penstock-api` takes it up.
"""


class Part(NamedTuple):
    """A part of `site.yml`: its heading, its key, its model, and what is said about it."""

    title: str
    key: str
    model: type[BaseModel]
    text: str


TAKEN_OVER = """\
What somebody else has on the node makes a deploy refuse, before it changes anything. Each name here allows one thing:

- `container_engine`: Docker of others. Its packages are replaced by Debian's, its `daemon.json` by Penstock's; its
  containers and images stay. Podman, k3s or a kubelet go on beside Penstock, and use GPUs without being counted.
- `database`: a PostgreSQL cluster with databases, of the version that the bundle has. Penstock makes its own beside
  them, and nobody reaches them by the network any more. Several clusters are never taken over.
- `exports`: what an NFS server exports. Its file is replaced, and who mounts them loses them.
- `packages`: what apt has to remove so that the node's packages can be installed.
- `web_server`: an nginx that serves something. Its default site is removed; where only the edge is on the node, it is
  stopped.

Files that were not Penstock's are kept, once, in `/var/lib/penstock/kept`. Busy ports, an interrupted dpkg and held
packages are never taken over. After the deploy the key may go: what was taken over is Penstock's, and
`penstock site uninstall` stops it, and with `--purge` removes its data. Keep the key where it is to go on."""

PARTS = (
    Part("Control API", "control_api", ControlApiSettings, "Deadlines, the scheduler, logins, and the directory."),
    Part("Node agents", "node_agent", NodeAgentSettings, "For the agents of all workers."),
    Part("Images", "images", ImageSettings, "Where they come from."),
    Part("Sessions", "sessions", SessionSettings, "What their network leads to."),
    Part("Place of a node", "nodes[]", LocationSettings, "By which the containers of a session are kept together."),
    Part("Machines that were in use", "nodes[]", TakingOver, TAKEN_OVER),
    Part("GPUs", "gpu", SharedGpus, "How GPUs are divided, and how the parts are held."),
    Part(
        "Simulated GPUs", "nodes[].simulated_gpus", SimulatedGpus, "For labs; they are marked as simulated everywhere."
    ),
    Part(
        "Kubernetes",
        "nodes[].kubernetes",
        KubernetesCluster,
        "A worker that [stands for a cluster](admin.md#a-kubernetes-cluster-as-a-node).",
    ),
    Part("Slurm", "slurm", SlurmSettings, "For a site [whose engine it is](engines.md#a-site-with-slurm)."),
    Part("A node of Slurm", "nodes[].slurm", SlurmNode, "What Slurm counts with there."),
    Part("Health", "health", Health, "When [checks](admin.md#health) warn and fail, and which of them close a node."),
    Part("Audit log", "audit", Audit, "How long the audit log is kept on the master, and who else gets it."),
    Part("Alerts", "alerts", Alerts, "Who is told of a check that changes; without a webhook and mail, nobody."),
    Part("Monitoring", "monitoring", MonitoringSettings, "[Prometheus and Alertmanager](admin.md#health) of the site."),
    Part("Edge", "edge", EdgeSettings, "What one caller may have of console, API and apps."),
    Part("Disks", "disk", Disk, "When what can wait has to."),
    Part("Logs", "logs", LogSettings, "How much of a node they may fill."),
    Part("Repairs", "repair", RepairSettings, "What [repairs](admin.md#repairs) may do."),
    Part("Backups", "backup", BackupSettings, "[Backups](admin.md#backups) of the site, by its reservoir node."),
    Part("Package index", "package_index", PackageIndexSettings, "The server of users' own Python packages."),
)


def page() -> str:
    """Return the page."""
    return HEAD + "".join(_section(part) for part in PARTS)


def _section(part: Part) -> str:
    schema = part.model.model_json_schema()
    required = schema.get("required", ())
    rows = [
        (name, "required" if name in required else _default(said), _values(said, schema), said["description"])
        for name, said in sorted(schema["properties"].items(), key=lambda item: item[0] not in required)
    ]
    lines = [f"| `{name}` | {default} | {values} | {meaning} |\n" for name, default, values, meaning in rows]
    head = "| key | default | values | meaning |\n|---|---|---|---|\n"
    return f"\n## {part.title}\n\n`{part.key}`: {part.text}\n\n{head}{''.join(lines)}"


def _default(said: dict[str, Any]) -> str:
    default = said.get("default")
    if default in (None, "", [], {}):
        return "–"
    if isinstance(default, list):
        return ("-" if "prefixItems" in said else ", ").join(map(str, default))
    return str(default).replace("|", "\\|")


def _values(said: dict[str, Any], schema: dict[str, Any]) -> str:
    kind = next((kind for kind in said.get("anyOf", ()) if kind != {"type": "null"}), said)
    kind = schema["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
    if "enum" in kind:
        return ", ".join(kind["enum"])
    if "items" in kind:
        return f"list: {_values(kind['items'], schema)}"
    bounds = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "to"}
    words = [f"{word} {kind[bound]}" for bound, word in bounds.items() if bound in kind]
    names = {"string": "text", "object": "mapping", "array": "range", "integer": "whole number"}
    return " ".join([names.get(kind["type"], kind["type"]), *words])


if __name__ == "__main__":
    PAGE.write_text(page())
