"""The lab: the nodes of a `site.yml` as systemd containers on a Docker network that has no way out.

Everything that belongs to a lab carries the label `io.penstock.lab=<site name>`, and `down` removes exactly that.
Only the node image is brought from the bundle; all else comes onto the nodes as it does at a site, from the
reservoir node, which finds the bundle at `/media/penstock` as it would find a disk.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from appliance.site import lab_node
from appliance.site.inventory import aliases
from appliance.site.model import ExternalStorage, NfsStorage, Node, NodeRole, Site
from common import process
from common.errors import ConflictError, InputError, NotFoundError, PartialError, PenstockError, UnavailableError
from reservoir.artifacts.image import archive
from reservoir.bundle import bundles
from reservoir.contents.artifact import ImageArtifact

LABEL = "io.penstock.lab"
IMAGE = "penstock/lab-node"
NODE_LABEL = "io.penstock.lab.node"
ADDRESS_LABEL = "io.penstock.lab.address"
BUNDLE_LABEL = "io.penstock.lab.bundle"
MEDIA = "/media/penstock"
SITE_FILE = "/etc/penstock/site.yml"
GIB = 1 << 30
FREE_BYTES_PER_NODE = 2 * GIB

Tell = Callable[[str], None]


@dataclass(frozen=True)
class NodeStatus:
    """One node of a lab; `state` is what Docker calls it, or `absent`."""

    name: str
    container: str
    address: str
    roles: list[str]
    state: str


@dataclass(frozen=True)
class Status:
    """A lab as it is now; `ca` is the site's CA certificate on this machine, None before the first deploy."""

    name: str
    network: str
    nodes: list[NodeStatus]
    console: str
    api: str
    ca: str | None

    def json(self) -> dict[str, Any]:
        """Return the status as plain data."""
        return asdict(self)


def subnet_of(site: Site) -> IPv4Network:
    """Return the /24 network that holds every node; raises InputError where the nodes do not share one."""
    network = IPv4Network(f"{site.nodes[0].address}/24", strict=False)
    for index, node in enumerate(site.nodes):
        if node.address not in network:
            raise InputError(
                f"{node.address} is outside of {network}, the network of the first node",
                where=f"nodes[{index}].address",
                hint="give all nodes of a lab one /24",
            )
        if node.address in (network.network_address, network.broadcast_address, network.network_address + 1):
            raise InputError(
                f"{node.address} is reserved in {network}",
                where=f"nodes[{index}].address",
                hint="use an address from .2 to .254",
            )
    return network


def up(site: Site, *, images: Mapping[str, str], bundle: Path | None, tell: Tell) -> None:
    """Start the network and the nodes of a lab, and give the reservoir node its keys to the others.

    `images` are the node images by the release that they run. What is there already is kept. Raises ConflictError
    where something else is in the way, and UnavailableError where Docker is not there, the disk is too full, a node
    does not boot, or a node has a way out.
    """
    subnet = subnet_of(site)
    _check_ssh(site)
    _check_engine()
    present = _present(site)
    _check_present(site, present, bundle)
    _network(site, subnet, tell)
    missing = [node for node in site.nodes if node.name not in present]
    _check_room(len(missing))
    for node in site.nodes:
        if node in missing:
            _create(site, node, images[node.release], bundle)
            tell(f"node {node.name}: started at {node.address}")
        elif present[node.name]["State"]["Status"] != "running":
            docker("start", container(site, node))
            tell(f"node {node.name}: started again")
        else:
            tell(f"node {node.name}: is up already")
    for node in site.nodes:
        state = lab_node.wait_until_booted(container(site, node))
        tell(f"node {node.name}: {state}")
    for node in site.nodes:
        lab_node.check_closed(container(site, node))
    tell(f"network {network_name(site)}: closed, no node has a way out")
    lab_node.connect(
        {node.name: (container(site, node), str(node.address)) for node in site.nodes},
        site.reservoir.name,
        site.ssh.private_key,
    )
    tell(f"ssh: {site.reservoir.name} reaches every node")


def node_image(bundle: Path, release: str, tell: Tell) -> str:
    """Bring a release's node image of a bundle into Docker and return its name; what is there is not loaded again.

    Raises IntegrityError where the bundle's signature or the hash of a blob does not hold.
    """
    _check_engine()
    listed = bundles.read_signed(bundle, None).bundle
    targets = {target.name for target in listed.targets if target.release == release}
    images = (image for image in listed.of_kind(ImageArtifact) if image.name == IMAGE and targets & set(image.targets))
    image = next(images, None)
    if image is None:
        raise NotFoundError(
            f"the bundle holds no image {IMAGE} of {release}",
            where=str(bundle / bundles.LIST),
            hint=f"list {IMAGE} for a target with that release in the manifest and build the bundle again",
        )
    # Tags of two bundles may say the same; the hash tells their images apart.
    name = f"{IMAGE}:{image.sha256[:12]}"
    if not process.succeeds(["docker", "image", "inspect", name]):
        tell(f"image {IMAGE}:{image.version}: loads")
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            path = Path(folder) / "image.tar"
            archive.write(path, bundle / bundles.BLOBS, image.sha256, f"{IMAGE}:{image.version}")
            docker("load", "--input", str(path))
        docker("tag", f"{IMAGE}:{image.version}", name)
    return name


def install(site: Site, site_text: str, tell: Tell) -> int:
    """Install Penstock on the reservoir node and let it deploy the site, as at a real site; output goes to ours.

    Returns the code of a deploy that came to its end: 0, or that of a deploy without all workers.
    """
    node = container(site, site.reservoir)
    lab_node.write(node, SITE_FILE, site_text, mode="0600")
    tell(f"node {site.reservoir.name}: installs penstock from {MEDIA}")
    process.attach(["docker", "exec", node, "sh", f"{MEDIA}/install.sh", "--trust-first"])
    tell(f"node {site.reservoir.name}: deploys the site")
    return process.attach(
        ["docker", "exec", node, "penstock", "site", "deploy", "-f", SITE_FILE, "--bundle", MEDIA],
        ends=(0, PartialError.exit_code),
        hint=f"look into the node with `docker exec -it {node} bash`; `penstock lab up` tries again",
    )


def fetch_ca(site: Site, folder: Path) -> Path:
    """Copy the certificate of the site's CA to `folder` on this machine and return its path."""
    text = docker("exec", container(site, site.reservoir), "cat", "/var/lib/penstock/site/pki/ca.crt")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ca.crt"
    path.write_text(text)
    return path


def down(name: str, folder: Path, tell: Tell) -> None:
    """Remove every container, network and volume of the lab `name`, and its folder on this machine."""
    _check_engine()
    mine = f"label={LABEL}={name}"
    for kind, listing, removal in (
        ("container", ("ps", "--all"), ("rm", "--force", "--volumes")),
        ("network", ("network", "ls"), ("network", "rm")),
        ("volume", ("volume", "ls"), ("volume", "rm")),
    ):
        if found := docker(*listing, "--quiet", "--filter", mine).split():
            docker(*removal, *found)
            tell(f"{len(found)} {kind}{'s' if len(found) > 1 else ''} removed")
    if folder.is_dir():
        shutil.rmtree(folder)


def status(site: Site, folder: Path) -> Status:
    """Return what there is of the lab of a site."""
    _check_engine()
    present = _present(site)
    ca = folder / "ca.crt"
    return Status(
        name=site.name,
        network=str(subnet_of(site)),
        nodes=[
            NodeStatus(
                node.name,
                container(site, node),
                str(node.address),
                [str(role) for role in node.roles],
                present[node.name]["State"]["Status"] if node.name in present else "absent",
            )
            for node in site.nodes
        ],
        console=by_address(site).console_url,
        api=by_address(site).api_url,
        ca=str(ca) if ca.is_file() else None,
    )


def by_address(site: Site) -> Site:
    """Return the site as the lab's own machine reaches it, whose name servers know no names of a lab."""
    return site.model_copy(update={"edge": site.edge.model_copy(update={"names": [], "apps_name": None})})


def docker(*arguments: str, stdin: str = "") -> str:
    """Run the `docker` command and return what it printed."""
    return process.run(["docker", *arguments], stdin=stdin)


def container(site: Site, node: Node) -> str:
    """Return the name of a node's container."""
    return f"penstock-{site.name}-{node.name}"


def network_name(site: Site) -> str:
    """Return the name of the lab's network."""
    return f"penstock-{site.name}"


def mounts(site: Site, node: Node) -> dict[str, str]:
    """Return the volumes of a node: name of the volume by the path where it stands.

    Docker and an NFS server cannot store on the overlay of a container; an external storage is one volume that
    every worker and the master share, as they would share a parallel file system.
    """
    own = f"penstock-{site.name}-{node.name}"
    found: dict[str, str] = {}
    if NodeRole.WORKER in node.roles:
        found["/var/lib/docker"] = f"{own}-docker"
    for storage in site.storage:
        if isinstance(storage, ExternalStorage) and {NodeRole.WORKER, NodeRole.MASTER} & set(node.roles):
            found[storage.path] = f"penstock-{site.name}-{storage.name}"
        if isinstance(storage, NfsStorage) and site.nfs_server(storage) == node:
            found[storage.path] = f"{own}-{storage.name}"
    return found


def _check_engine() -> None:
    process.require("docker", "docker.io")
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except PenstockError as error:
        raise UnavailableError(
            "Docker does not answer", where="docker", hint="start it with `systemctl start docker`, and run as root"
        ) from error


def _check_ssh(site: Site) -> None:
    if (site.ssh.user, site.ssh.port) != ("root", 22):
        raise InputError(
            f"the nodes of a lab know {site.ssh.user} at port {site.ssh.port} not",
            where="ssh",
            hint="rehearse with `user: root` and `port: 22`",
        )


def _check_room(nodes: int) -> None:
    root = Path(docker("info", "--format", "{{.DockerRootDir}}").strip())
    if not root.is_dir():
        return
    free, wanted = shutil.disk_usage(root).free, nodes * FREE_BYTES_PER_NODE
    if free < wanted:
        raise UnavailableError(
            f"{free / GIB:.1f} GiB are free where Docker stores, and {nodes} nodes need {wanted / GIB:.0f} GiB",
            where=str(root),
            hint="make room, for example with `docker system prune`",
        )


def _present(site: Site) -> dict[str, dict[str, Any]]:
    """Return what Docker knows of each container of this lab, by the name of its node."""
    ids = docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={site.name}").split()
    if not ids:
        return {}
    return {item["Config"]["Labels"][NODE_LABEL]: item for item in json.loads(docker("inspect", *ids))}


def _check_present(site: Site, present: dict[str, dict[str, Any]], bundle: Path | None) -> None:
    """Refuse to go on with nodes that were started for another site file or from another bundle."""
    addresses = {node.name: str(node.address) for node in site.nodes}
    for name, item in present.items():
        labels = item["Config"]["Labels"]
        if addresses.get(name) != labels[ADDRESS_LABEL]:
            reason = f"the lab has a node {name} at {labels[ADDRESS_LABEL]}, which the site file does not have"
        elif bundle is not None and labels.get(BUNDLE_LABEL, _mark(bundle)) != _mark(bundle):
            reason = f"the lab was started from another bundle than {bundle} is now"
        else:
            continue
        raise ConflictError(reason, where=site.name, hint="remove the lab with `penstock lab down` first")


def _mark(bundle: Path) -> str:
    """Return what tells one bundle folder from another that took its name: a mount keeps showing the old one."""
    return f"{bundle.resolve()}:{bundle.stat().st_ino}"


def _network(site: Site, subnet: IPv4Network, tell: Tell) -> None:
    name = network_name(site)
    networks = json.loads(docker("network", "inspect", *docker("network", "ls", "--quiet").split()))
    for network in networks:
        used = [IPv4Network(config["Subnet"]) for config in _ipv4_configs(network)]
        if network["Name"] == name:
            if used != [subnet] or not network["Internal"]:
                raise ConflictError(
                    f"the network {name} exists and is not the closed {subnet}",
                    where=site.name,
                    hint="remove the lab with `penstock lab down` first",
                )
            tell(f"network {name}: is there already")
            return
        if any(subnet.overlaps(other) for other in used):
            raise ConflictError(
                f"the Docker network {network['Name']} uses {subnet} already",
                where="nodes[0].address",
                hint=f"choose addresses in another network, or remove it with `docker network rm {network['Name']}`",
            )
    docker("network", "create", "--internal", "--subnet", str(subnet), "--label", f"{LABEL}={site.name}", name)
    tell(f"network {name}: {subnet}")


def _ipv4_configs(network: dict[str, Any]) -> list[dict[str, str]]:
    configs = network["IPAM"]["Config"] or []
    return [config for config in configs if "Subnet" in config and ":" not in config["Subnet"]]


def _create(site: Site, node: Node, image: str, bundle: Path | None) -> None:
    """Create and start the container of a node.

    systemd needs the capabilities, the cgroup tree and tmpfs for /run; without SYS_RESOURCE and SYS_TIME a node can
    neither raise the limits of this machine nor set its clock.
    """
    volumes = mounts(site, node)
    for volume in volumes.values():
        docker("volume", "create", "--label", f"{LABEL}={site.name}", volume)
    labels = {LABEL: site.name, NODE_LABEL: node.name, ADDRESS_LABEL: str(node.address)}
    binds = [f"{volume}:{path}" for path, volume in volumes.items()]
    if bundle is not None and NodeRole.RESERVOIR in node.roles:
        labels[BUNDLE_LABEL] = _mark(bundle)
        binds.append(f"{bundle.resolve()}:{MEDIA}:ro")
    docker(
        "run",
        "--detach",
        *("--name", container(site, node)),
        *("--hostname", node.name),
        *("--network", network_name(site)),
        *("--ip", str(node.address)),
        *(word for alias in (node.name, *aliases(site, node)) for word in ("--network-alias", alias)),
        # Docker drops questions about outside names instead of refusing them; programs should not wait long for that.
        *("--dns-opt", "timeout:1", "--dns-opt", "attempts:1"),
        *(word for label in labels.items() for word in ("--label", "=".join(label))),
        # a reboot ends the container with a code of its own, and is to start it again
        *("--restart", "on-failure"),
        *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--cap-drop", "SYS_TIME"),
        *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
        *("--tmpfs", "/run:exec", "--tmpfs", "/tmp:exec"),  # noqa: S108 - paths inside the node
        *("--cgroupns=host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"),
        *(word for bind in binds for word in ("--volume", bind)),
        image,
        "/sbin/init",
    )
