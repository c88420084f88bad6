"""The lab's dealings with Docker, which is played by a table of answers here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.site import lab, lab_node
from appliance.site.model import Site
from appliance.site.site_file import load
from common import process
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, ProcessError, UnavailableError
from common.yaml_document import parse
from reservoir.bundle import bundles
from reservoir.contents.target import TargetRecord
from tests.unit.reservoir.parts import image_blobs

EXAMPLE = (Path(__file__).parents[4] / "inventory/example/site.yml").read_text()
TARGETS = [
    TargetRecord(name="debian12", os="debian", release="bookworm", arch="amd64"),
    TargetRecord(name="debian13", os="debian", release="trixie", arch="amd64"),
]
CLOSED = {"routes": [], "connect": "ENETUNREACH"}


def site(text: str = EXAMPLE) -> Site:
    return load(parse(text, "site.yml"))


class Docker:
    """Notes every command and answers it; a fresh machine unless told otherwise."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.containers: list[dict[str, Any]] = []
        self.networks: list[dict[str, Any]] = [
            {"Name": "bridge", "Internal": False, "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}},
            {"Name": "none", "Internal": False, "IPAM": {"Config": None}},
            {"Name": "six", "Internal": False, "IPAM": {"Config": [{"Subnet": "fd00::/64"}]}},
        ]
        self.closed: dict[str, Any] = dict(CLOSED)
        self.root = Path("/")
        self.runs = True

    def __call__(self, command: list[str], *, stdin: str = "", **_: Any) -> str:
        words = [str(word) for word in command[1:]]
        self.commands.append(words)
        match words:
            case ["version", *_]:
                if not self.runs:
                    raise ProcessError("cannot connect")
                return "20.10\n"
            case ["info", *_]:
                return f"{self.root}\n"
            case ["ps", *_]:
                return "\n".join(str(index) for index in range(len(self.containers)))
            case ["inspect", *_]:
                return json.dumps(self.containers)
            case ["network", "ls", *_]:
                return "1 2 3"
            case ["network", "inspect", *_]:
                return json.dumps(self.networks)
            case ["volume", "ls", *_]:
                return "v1 v2"
            case ["exec", *rest] if lab_node.ROUTES in rest:
                return json.dumps(self.closed)
            case ["exec", *rest] if "is-system-running" in rest:
                return "running\n"
            case ["exec", *rest] if "is-active" in rest:
                return "active\n"
            case ["exec", *rest] if any("ssh_host" in word for word in rest):
                return f"ssh-ed25519 KEY-OF-{rest[0]} root@node\n"
        return ""

    def of(self, *start: str) -> list[list[str]]:
        return [words for words in self.commands if words[: len(start)] == list(start)]

    def lab_of(self, found: Site, **changes: str) -> None:
        for node in found.nodes:
            labels = {lab.NODE_LABEL: node.name, lab.ADDRESS_LABEL: changes.get(node.name, str(node.address))}
            self.containers.append({"Config": {"Labels": labels}, "State": {"Status": "running"}})


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    played = Docker()
    monkeypatch.setattr(process, "run", played)
    monkeypatch.setattr(process, "require", lambda *_: "docker")
    return played


@pytest.fixture
def up(docker: Docker) -> Callable[..., list[str]]:
    def up(found: Site | None = None, bundle: Path | None = None) -> list[str]:
        told: list[str] = []
        lab.up(found or site(), images={"bookworm": "node:12", "trixie": "node:13"}, bundle=bundle, tell=told.append)
        return told

    return up


def options(words: list[str], name: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == name]


def test_a_node_is_a_systemd_container_with_its_address_and_nothing_of_the_host(docker: Docker, up: Any) -> None:
    up()
    runs = {options(words, "--hostname")[0]: words for words in docker.of("run")}
    assert list(runs) == ["master1", "worker1", "worker2", "storage1"]
    master = runs["master1"]
    assert options(master, "--ip") == ["10.71.8.10"]
    assert options(master, "--network") == ["penstock-lab"]
    assert set(options(master, "--network-alias")) == {"master1", "penstock", "reservoir"}
    assert "io.penstock.lab=lab" in options(master, "--label")
    assert set(options(master, "--cap-drop")) == {"SYS_RESOURCE", "SYS_TIME"}
    assert "--privileged" not in master
    assert "--publish" not in master
    assert master[-2:] == ["node:12", "/sbin/init"]


def test_what_needs_a_real_file_system_stands_on_volumes(docker: Docker, up: Any) -> None:
    up()
    volumes = {options(words, "--hostname")[0]: options(words, "--volume") for words in docker.of("run")}
    cgroup = "/sys/fs/cgroup:/sys/fs/cgroup:rw"
    shared = "penstock-lab-shared:/srv/shared"
    assert volumes == {
        "master1": [cgroup, shared],
        "worker1": [cgroup, "penstock-lab-worker1-docker:/var/lib/docker", shared],
        "worker2": [cgroup, "penstock-lab-worker2-docker:/var/lib/docker", shared],
        "storage1": [cgroup, "penstock-lab-storage1-archive:/srv/archive"],
    }
    made = docker.of("volume", "create")
    assert {words[-1] for words in made} >= {"penstock-lab-shared", "penstock-lab-worker1-docker"}
    assert all("io.penstock.lab=lab" in options(words, "--label") for words in made)


def test_the_network_is_internal_and_labelled(docker: Docker, up: Any) -> None:
    up()
    (create,) = docker.of("network", "create")
    assert "--internal" in create
    assert options(create, "--subnet") == ["10.71.8.0/24"]
    assert options(create, "--label") == ["io.penstock.lab=lab"]


def test_the_bundle_is_mounted_read_only_on_the_reservoir_node_alone(docker: Docker, up: Any, tmp_path: Path) -> None:
    up(bundle=tmp_path)
    mounts = {options(words, "--hostname")[0]: options(words, "--volume") for words in docker.of("run")}
    assert f"{tmp_path}:/media/penstock:ro" in mounts["master1"]
    assert not any("/media" in mount for name in ("worker1", "worker2", "storage1") for mount in mounts[name])


def test_a_second_up_keeps_what_is_there_and_starts_what_stopped(docker: Docker, up: Any) -> None:
    docker.lab_of(site())
    docker.containers[1]["State"]["Status"] = "exited"
    docker.networks.append({"Name": "penstock-lab", "Internal": True, "IPAM": {"Config": [{"Subnet": "10.71.8.0/24"}]}})
    told = up()
    assert not docker.of("run")
    assert not docker.of("network", "create")
    assert docker.of("start") == [["start", "penstock-lab-worker1"]]
    assert "node worker1: started again" in told


def test_the_host_keys_of_all_nodes_are_known_to_the_reservoir_node(docker: Docker, monkeypatch: Any, up: Any) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr(lab_node, "write", lambda _, path, text, mode="": written.update({path: text}))
    up()
    lines = written["/var/lib/penstock/site/known_hosts"].splitlines()
    assert lines[1] == "worker1,10.71.8.11 ssh-ed25519 KEY-OF-penstock-lab-worker1"
    assert len(lines) == 4
    logins = [words[-2] for words in docker.commands if "BatchMode=yes" in words]
    assert logins == ["root@10.71.8.11", "root@10.71.8.12", "root@10.71.8.13"]


class TestNothingIsStarted:
    """Each of these stops `up` before the first container."""

    @pytest.fixture(autouse=True)
    def _nothing(self, docker: Docker) -> Any:
        yield
        assert not docker.of("run")

    def test_while_docker_does_not_answer(self, docker: Docker, up: Any) -> None:
        docker.runs = False
        with pytest.raises(UnavailableError, match=r"Docker does not answer.*systemctl start docker"):
            up()

    def test_on_a_network_that_another_one_uses(self, docker: Docker, up: Any) -> None:
        docker.networks.append({"Name": "mine", "Internal": False, "IPAM": {"Config": [{"Subnet": "10.71.0.0/16"}]}})
        with pytest.raises(ConflictError, match=r"network mine uses 10\.71\.8\.0/24 already.*docker network rm mine"):
            up()

    def test_on_a_network_of_that_name_which_is_open(self, docker: Docker, up: Any) -> None:
        config = {"Config": [{"Subnet": "10.71.8.0/24"}]}
        docker.networks.append({"Name": "penstock-lab", "Internal": False, "IPAM": config})
        with pytest.raises(ConflictError, match="is not the closed"):
            up()

    def test_without_room_on_the_disk(self, up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab, "FREE_BYTES_PER_NODE", 1 << 60)
        with pytest.raises(UnavailableError, match=r"are free where Docker stores, and 4 nodes need.*prune"):
            up()

    def test_beside_a_node_that_the_site_file_no_longer_has(self, docker: Docker, up: Any) -> None:
        docker.lab_of(site(), worker2="10.71.8.99")
        with pytest.raises(ConflictError, match=r"a node worker2 at 10\.71\.8\.99.*penstock lab down"):
            up()

    def test_with_another_bundle_than_the_lab_was_started_from(self, docker: Docker, up: Any, tmp_path: Path) -> None:
        docker.lab_of(site())
        docker.containers[0]["Config"]["Labels"][lab.BUNDLE_LABEL] = f"{tmp_path}:1"
        with pytest.raises(ConflictError, match=r"another bundle.*penstock lab down"):
            up(bundle=tmp_path)

    def test_for_an_ssh_user_that_lab_nodes_do_not_know(self, up: Any) -> None:
        with pytest.raises(InputError, match="rehearse with `user: root`"):
            up(site(EXAMPLE + "ssh: {user: operator}\n"))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"routes": ["IPv4 by eth0"], "connect": "ENETUNREACH"}, "way out: IPv4 by eth0"),
        ({"routes": [], "connect": "connected"}, "192.0.2.1 gave connected"),
        ({"routes": [], "connect": "timed out"}, "192.0.2.1 gave timed out"),
    ],
)
def test_a_node_with_a_way_out_is_an_error(docker: Docker, up: Any, found: dict[str, Any], reason: str) -> None:
    docker.closed = found
    with pytest.raises(UnavailableError, match=reason):
        up()


def test_a_node_that_does_not_boot_is_an_error(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", lambda *_, **__: "starting\n")
    with pytest.raises(UnavailableError, match=r"systemd is starting, sshd is starting.*docker logs node"):
        lab_node.wait_until_booted("node", deadline_s=0.01)


def test_down_removes_exactly_what_bears_the_label(docker: Docker, tmp_path: Path) -> None:
    docker.lab_of(site())
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "ca.crt").touch()
    told: list[str] = []
    lab.down("lab", folder, told.append)
    assert docker.of("rm") == [["rm", "--force", "--volumes", "0", "1", "2", "3"]]
    assert docker.of("network", "rm") == [["network", "rm", "1", "2", "3"]]
    assert docker.of("volume", "rm") == [["volume", "rm", "v1", "v2"]]
    listings = [*docker.of("ps"), *docker.of("network", "ls"), *docker.of("volume", "ls")]
    assert all("label=io.penstock.lab=lab" in words for words in listings)
    assert told == ["4 containers removed", "3 networks removed", "2 volumes removed"]
    assert not folder.exists()


def test_status_tells_what_is_there_and_what_is_not(docker: Docker, tmp_path: Path) -> None:
    docker.lab_of(site())
    del docker.containers[3]
    (tmp_path / "ca.crt").touch()
    found = lab.status(site(), tmp_path).json()
    assert [(node["name"], node["state"]) for node in found["nodes"]] == [
        ("master1", "running"),
        ("worker1", "running"),
        ("worker2", "running"),
        ("storage1", "absent"),
    ]
    assert found["nodes"][0]["container"] == "penstock-lab-master1"
    assert found["ca"] == str(tmp_path / "ca.crt")
    assert (found["console"], found["api"]) == ("https://10.71.8.10", "https://10.71.8.10:56789")


def test_a_lab_is_reached_by_its_address_whatever_names_its_site_has(docker: Docker, tmp_path: Path) -> None:
    named = site(EXAMPLE + "edge: {names: [console.gpu.test], apps_name: apps.gpu.test}\n")
    found = lab.status(named, tmp_path)
    assert (found.console, found.api) == ("https://10.71.8.10", "https://10.71.8.10:56789")


class TestNodeImage:
    """The image comes from a bundle whose signature and hashes hold."""

    @pytest.fixture
    def bundle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "blobs" / "sha256").mkdir(parents=True)
        self.sha256 = sha256 = image_blobs(tmp_path / "blobs" / "sha256")
        self.names = [lab.IMAGE]

        class Listed:
            targets = TARGETS

            def of_kind(_, kind: str) -> list[Any]:  # noqa: N805 - the outer self is meant

                images = [("debian13", "13", "0" * 64), ("debian12", "12", sha256)]
                return [
                    SimpleNamespace(name=name, version=version, sha256=blob, targets=[target])
                    for name in self.names
                    for target, version, blob in images
                ]

        monkeypatch.setattr(bundles, "read_signed", lambda *_: SimpleNamespace(bundle=Listed()))
        return tmp_path

    def test_it_is_loaded_and_named_by_its_hash(self, bundle: Path, docker: Docker, monkeypatch: Any) -> None:
        monkeypatch.setattr(process, "succeeds", lambda _: False)
        assert lab.node_image(bundle, "bookworm", lambda _: None) == f"penstock/lab-node:{self.sha256[:12]}"
        assert len(docker.of("load")) == 1
        assert ["tag", "penstock/lab-node:12", f"penstock/lab-node:{self.sha256[:12]}"] in docker.of("tag")

    def test_it_is_not_loaded_again(self, bundle: Path, docker: Docker, monkeypatch: Any) -> None:
        monkeypatch.setattr(process, "succeeds", lambda _: True)
        lab.node_image(bundle, "bookworm", lambda _: None)
        assert not docker.of("load")

    def test_a_changed_or_missing_blob_is_refused(self, bundle: Path, docker: Docker, monkeypatch: Any) -> None:
        monkeypatch.setattr(process, "succeeds", lambda _: False)
        blob = bundle / "blobs" / "sha256" / self.sha256
        blob.write_bytes(b"an imagE")
        with pytest.raises(IntegrityError, match="the hash of the blob does not hold"):
            lab.node_image(bundle, "bookworm", lambda _: None)
        blob.unlink()
        with pytest.raises(IntegrityError, match="a blob is missing"):
            lab.node_image(bundle, "bookworm", lambda _: None)
        assert not docker.of("load")

    def test_a_bundle_without_it_is_refused(self, bundle: Path, docker: Docker) -> None:
        self.names = ["penstock/python"]
        with pytest.raises(
            NotFoundError, match=r"holds no image penstock/lab-node of bookworm.*list penstock/lab-node"
        ):
            lab.node_image(bundle, "bookworm", lambda _: None)


def test_a_lab_needs_one_network_of_256_addresses() -> None:
    assert str(lab.subnet_of(site())) == "10.71.8.0/24"
    for address, reason in (
        ("10.71.9.3", "outside of 10.71.8.0/24"),
        ("10.71.8.1", "reserved"),
        ("10.71.8.255", "reserved"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            lab.subnet_of(site(EXAMPLE.replace("10.71.8.11", address).replace("10.71.8.0/24", "10.71.8.0/22")))
        assert caught.value.problems[0].where == "nodes[1].address"


def test_the_site_file_in_a_node_is_for_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = Docker()
    monkeypatch.setattr(process, "run", docker)
    monkeypatch.setattr(process, "attach", lambda *_, **__: 0)
    assert lab.install(site(), EXAMPLE, print) == 0
    [written] = [words for words in docker.commands if lab.SITE_FILE in words]
    assert written[-2:] == [lab.SITE_FILE, "0600"]
