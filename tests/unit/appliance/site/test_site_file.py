"""The site file: what is accepted, and what every mistake says."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from appliance.site.model import NodeRole, Site, worker_path
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse

POOL = "{name: a, machines: {p: a}, most: 2, cpu_milli: 1, memory_mib: 1}"
EXAMPLE = (Path(__file__).parents[4] / "inventory/example/site.yml").read_text()

GOOD = """\
name: north
nodes:
  - {name: m1, address: 10.0.0.2, roles: [reservoir, master]}
  - {name: w1, address: 10.0.0.3, roles: [worker], agent_port: 6001}
  - {name: s1, address: 10.0.0.4, roles: [storage]}
storage:
  - {kind: external, name: shared, path: /srv/shared}
  - {kind: nfs, name: archive, path: /srv/archive}
"""


def site(text: str) -> Site:
    return load(parse(dedent(text), "site.yml"))


def problems(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InputError) as caught:
        site(text)
    return [(problem.where, problem.reason, problem.hint) for problem in caught.value.problems]


def test_the_example_is_valid() -> None:
    example = site(EXAMPLE)
    assert [node.name for node in example.nodes] == ["master1", "worker1", "worker2", "storage1"]
    assert example.reservoir.name == example.master.name == "master1"
    assert [node.name for node in example.with_role(NodeRole.WORKER)] == ["worker1", "worker2"]
    assert example.session_pvc_root == "/srv/shared"
    assert (example.console_url, example.api_url) == ("https://10.71.8.10", "https://10.71.8.10:56789")


def test_a_minimal_site_takes_the_defaults() -> None:
    minimal = site("name: one\nnodes: [{name: m1, address: 10.0.0.2, roles: [reservoir, master]}]\n")
    assert (minimal.ports.console, minimal.ports.api, minimal.gpu.step_milli) == (443, 56789, 50)
    assert minimal.session_pvc_root is None
    assert (minimal.apps_url, minimal.session_host_paths) == ("https://10.0.0.2:9443", [])


def test_shares_are_held_by_the_best_kind_that_a_node_can_unless_the_site_says_otherwise() -> None:
    gpu = site(GOOD).gpu
    assert gpu.enforcement == ["driver", "mig", "shim", "mps", "none"]
    assert (gpu.gpu_compute, gpu.gpu_period_ms, gpu.gpu_slack_mib) == ("strict", 200, 512)
    chosen = site(GOOD + "gpu: {enforcement: [driver, shim], compute: fair, period_ms: 100, slack_mib: 0}\n").gpu
    assert (chosen.enforcement, chosen.gpu_compute) == (["driver", "shim"], "fair")
    assert (chosen.gpu_period_ms, chosen.gpu_slack_mib, chosen.fgpu_per_gpu) == (100, 0, 2)


def test_other_accelerators_come_by_packages_of_the_publication() -> None:
    gpu = site(GOOD + "gpu: {accelerators: [nvidia, acme], plugins: [penstock-acme==2.1]}\n").gpu
    assert (gpu.accelerators, gpu.plugins) == (["nvidia", "acme"], ["penstock-acme==2.1"])
    assert problems(GOOD + "gpu: {plugins: [--index-url=x]}\n")[0][0] == "site.yml:9: gpu.plugins[0]"


@pytest.mark.parametrize("word", ["off", "'off'"])
def test_compute_may_be_off_with_or_without_quotes(word: str) -> None:
    assert site(GOOD + f"gpu: {{compute: {word}}}\n").gpu.gpu_compute == "off"


def test_another_console_port_stands_in_its_url() -> None:
    assert site(GOOD + "ports: {console: 8444}\n").console_url == "https://10.0.0.2:8444"


@pytest.mark.parametrize(
    ("old", "new", "where", "reason", "hint"),
    [
        ("name: north", "name: north\ncolour: red", "2: colour", "unknown key", "remove the key, or correct"),
        ("roles: [worker], ", "roles: [worker], gpu: 4, ", "4: nodes[1].gpu", "unknown key", "remove the key"),
        ("name: north\n", "", "1: name", "this is required", "add it"),
        ("name: w1", "name: m1", "4: nodes[1].name", "m1 is also nodes[0].name", "its own name"),
        ("10.0.0.3", "10.0.0.2", "4: nodes[1].address", "10.0.0.2 is also nodes[0].address", "its own address"),
        (
            "agent_port: 6001",
            "agent_port: 6001, ib_address: 10.0.0.4",
            "5: nodes[2].address",
            "10.0.0.4 is also nodes[1].ib_address",
            "its own address",
        ),
        (
            "name: north",
            "name: north\ntime: {zone: Asia/Seol}",
            "2: time.zone",
            "there is no time zone",
            "mean Asia/Seoul?",
        ),
        ("10.0.0.3", "10.0.0.300", "4: nodes[1].address", "is not an IPv4 address", "write one such as 10.0.0.1"),
        ("10.0.0.3", "127.0.0.1", "4: nodes[1].address", "127.0.0.1 cannot be the address", "the site's network"),
        (", agent_port: 6001", "", "4: nodes[1]", "worker w1 has no agent_port", "add `agent_port: 6001`"),
        ("6001", "70000", "4: nodes[1].agent_port", "is more than 65535", "write 65535 or less"),
        ("6001", "22", "4: nodes[1].agent_port", "port 22 is also used by ssh", "choose another port"),
        (
            "[reservoir, master]",
            "[reservoir, master, worker], agent_port: 443",
            "3: nodes[0].agent_port",
            "port 443 is also used by ports.console",
            "choose another port",
        ),
        (
            "roles: [storage]",
            "roles: [storage], agent_port: 6001",
            "5: nodes[2].agent_port",
            "s1 is not a worker",
            "add",
        ),
        (
            "roles: [storage]",
            "roles: [storage], simulated_gpus: {count: 1}",
            "5: nodes[2].simulated_gpus",
            "s1 is not a worker",
            "or add the role worker",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: http://10.0.0.50}",
            "4: nodes[1].kubernetes.api",
            "does not match",
            "correct the value",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://10.0.0.50}, enforcement: [none]",
            "4: nodes[1].enforcement",
            "w1 stands for a Kubernetes cluster, whose GPUs are its own and whole",
            "remove enforcement",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, egress: [10.0.0.0/8, 169.254.169.254/32]}",
            "4: nodes[1].kubernetes.egress[1]",
            "169.254.169.254/32 lies in 169.254.0.0/16, where metadata services tell the secrets of machines",
            "name another network, or none",
        ),
        (
            "agent_port: 6001",
            f"agent_port: 6001, kubernetes: {{api: https://k, pools: [{POOL}, {POOL}]}}",
            "4: nodes[1].kubernetes.pools[1].name",
            "two pools are called a",
            "give each a name of its own",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, pod_template: {spec: {hostNetwork: true}}}",
            "4: nodes[1].kubernetes.pod_template.spec.hostNetwork",
            "a session gets no rights of its machine",
            "remove the key",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, pod_template: {spec: {securityContext: {runAsUser: 0}}}}",
            "4: nodes[1].kubernetes.pod_template.spec.securityContext.runAsUser",
            "who sessions run as is said by the settings `pod_security` and `run_as`",
            "remove the key",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, pod_template: {metadata: {labels: {io.penstock.id: c}}}}",
            "4: nodes[1].kubernetes.pod_template.metadata.labels.io.penstock.id",
            "the agent alone writes io.penstock.id",
            "remove the key",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, pod_template: {spec: {priorityClas: x}}}",
            "4: nodes[1].kubernetes.pod_template.spec.priorityClas",
            "unknown key",
            "did you mean `priorityClassName`?",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, kubernetes: {api: https://k, tolerations: [{key: a, operator: Exists, value: b}]}",
            "4: nodes[1].kubernetes.tolerations[0]",
            "with `operator: Exists` a toleration has no value",
            "correct the value",
        ),
        (
            "roles: [storage]",
            "roles: [storage], kubernetes: {api: https://k}",
            "5: nodes[2].kubernetes",
            "s1 is not a worker",
            "or add the role worker",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, simulated_gpus: {count: 17}",
            "4: nodes[1].simulated_gpus.count",
            "is more than 16",
            "write 16 or less",
        ),
        (
            "name: north",
            "name: north\ngpu: {fgpu_per_gpu: 3, steps_per_fgpu: 10}",
            "2: gpu.steps_per_fgpu",
            "3 fGPU of 10 steps each do not divide 1000 milli-GPU without a rest",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ngpu: {fgpu_per_gpu: 7}",
            "2: gpu.steps_per_fgpu",
            "7 fGPU of 10 steps each do not divide 1000 milli-GPU without a rest",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ncontrol_api:\n  metrics_keep_s: 60\n  metrics_keep: 60",
            "4: control_api.metrics_keep",
            "unknown key",
            "did you mean `metrics_keep_s`? Otherwise remove the key",
        ),
        (
            "name: north",
            "name: north\ncontrol_api: {database_url: x}",
            "2: control_api.database_url",
            "unknown key",
            "remove the key",
        ),
        (
            "name: north",
            "name: north\ncontrol_api: {reclaim_grace_s: 601}",
            "2: control_api.reclaim_grace_s",
            "is more than 600",
            "write 600 or less",
        ),
        (
            "name: north",
            "name: north\ncontrol_api: {gang_networks: 8.8.8.0/24}",
            "2: control_api.gang_networks",
            "8.8.8.0/24 is not private",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ncontrol_api: {heartbeat_interval_s: 20}",
            "2: control_api",
            "node_lost_s must be above heartbeat_interval_s",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ncontrol_api: {ldap_ca: ca.crt}",
            "2: control_api.ldap_ca",
            "does not match",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\nnode_agent: {pids_limit: many}",
            "2: node_agent.pids_limit",
            "is not a whole number",
            "write digits",
        ),
        (
            "name: north",
            "name: north\nnode_agent: {port_range: 57999-57000}",
            "2: node_agent.port_range",
            "57999 is above 57000",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ngpu: {gpu_period_ms: 100}",
            "2: gpu.gpu_period_ms",
            "unknown key",
            "remove the key",
        ),
        (
            "name: north",
            "name: north\nlogs: {gather: true, gathered_mib: 300}",
            "2: logs.gathered_mib",
            "is too little for the journals of 3 nodes",
            "write 384 or more",
        ),
        (
            "name: north",
            "name: north\npackage_index: {upload_limit_mib: 0}",
            "2: package_index.upload_limit_mib",
            "is less than 1",
            "write 1 or more",
        ),
        (
            "name: north",
            "name: north\ngpu: {enforcement: [shim, magic]}",
            "2: gpu.enforcement[1]",
            "is not 'driver', 'mig', 'shim', 'mps' or 'none'",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ngpu: {enforcement: []}",
            "2: gpu.enforcement",
            "is empty",
            "give 1 at least",
        ),
        (
            "name: north",
            "name: north\ngpu:\n  enforcement:\n    - shim\n    - mps\n    - shim",
            "6: gpu.enforcement[2]",
            "shim stands twice",
            "name each kind once",
        ),
        (
            "agent_port: 6001",
            "agent_port: 6001, enforcement: [none, mps]",
            "4: nodes[1].enforcement[1]",
            "mps is never tried, because every node can do `none`, which stands before it",
            "put `none` at the end, or leave it out",
        ),
        (
            "roles: [storage]",
            "roles: [storage], enforcement: [shim]",
            "5: nodes[2].enforcement",
            "s1 is not a worker",
            "remove enforcement, or add the role worker",
        ),
        (
            "name: north",
            "name: north\ngpu: {compute: loose}",
            "2: gpu.compute",
            "is not 'off', 'strict' or 'fair'",
            "correct the value",
        ),
        (
            "name: north",
            "name: north\ngpu: {period_ms: 5}",
            "2: gpu.period_ms",
            "is less than 20",
            "write 20 or more",
        ),
        (
            "name: north",
            "name: north\ngpu: {slack_mib: -1}",
            "2: gpu.slack_mib",
            "is less than 0",
            "write 0 or more",
        ),
        ("[reservoir, master]", "[reservoir]", "2: nodes", "0 nodes have the role master", "to exactly one node"),
        ("[reservoir, master]", "[master]", "2: nodes", "0 nodes have the role reservoir", "to exactly one node"),
        ("[worker]", "[worker, master]", "2: nodes", "2 nodes have the role master", "to exactly one node"),
        ("[worker]", "[worker, worker]", "4: nodes[1].roles", "a role stands twice", "name each role once"),
        ("[storage]", "[stroage]", "5: nodes[2].roles[0]", "is not 'reservoir', 'master'", "correct"),
        ("[storage]", "[]", "5: nodes[2].roles", "is empty", "give 1 at least"),
        ("name: s1", "name: reservoir", "5: nodes[2].name", "the name reservoir leads to a service", "another name"),
        ("name: s1", "name: edge", "5: nodes[2].name", "edge is a group of nodes for Ansible", "choose another name"),
        ("name: s1", "name: all", "5: nodes[2].name", "all is a group of nodes for Ansible", "choose another name"),
        ("name: s1", "name: S1", "5: nodes[2].name", "does not match", "correct the value"),
        (
            "roles: [worker],",
            "roles: [worker, storage],",
            "8: storage[1]",
            "2 nodes have the role storage",
            "with `node`",
        ),
        ("[storage]}", "[worker], agent_port: 1}", "8: storage[1]", "no node has the role storage", "role storage to"),
        (
            "path: /srv/archive",
            "path: /srv/archive, node: w1",
            "8: storage[1].node",
            "w1 is not a node with",
            "storage",
        ),
        ("name: archive", "name: shared", "7: storage[0].name", "two storages are named shared", "its own name"),
        ("path: /srv/archive", "path: /srv/../etc", "8: storage[1].path", "does not match", "correct"),
        (
            "path: /srv/archive",
            "path: /a, mount_path: /srv/shared/a",
            "8: storage[1].mount_path",
            "/srv/shared/a and /srv/shared of shared overlap",
            "choose another folder",
        ),
        ("kind: external", "kind: glusterfs", "7: storage[0]", "Input tag 'glusterfs' found using 'kind'", "correct"),
        (
            "name: north",
            "name: north\nsession_storage: other",
            "2: session_storage",
            "no storage is named other",
            "name one of `storage`",
        ),
        (
            "path: /srv/archive}",
            "path: /srv/archive, clients: []}\nsession_storage: archive",
            "9: session_storage",
            "workers do not mount archive",
            "add worker to its `clients`",
        ),
        (
            "name: north",
            "name: north\nports: {api: 443}",
            "2: ports.api",
            "port 443 is also used by ports.console",
            "choose another port",
        ),
        (
            "name: north",
            "name: north\nports: {console: 22}",
            "2: ports.console",
            "port 22 is also used by ssh",
            "choose another port",
        ),
        (
            "name: north",
            "name: north\nports: {apps: 8443}",
            "2: ports.reservoir",
            "port 8443 is also used by ports.apps",
            "choose another port",
        ),
        (
            "name: north",
            "name: north\nsession_host_paths: [/mnt/penstock/sets, /mnt]",
            "2: session_host_paths[1]",
            "/mnt is the storage archive as a whole, or lies above it",
            "open a folder in it",
        ),
        (
            "name: north",
            "name: north\nsession_host_paths: [/mnt/data, /etc/ssl]",
            "2: session_host_paths[1]",
            "/etc/ssl belongs to the system",
            "name a folder such as /mnt/data",
        ),
        (
            "name: north",
            "name: north\nports: {registry: 5001}",
            "2: ports.registry",
            "port 5001 is also used by the registry behind its TLS",
            "choose another port",
        ),
        (
            "name: north",
            "name: north\ntime: {servers: ['a b']}",
            "2: time.servers[0]",
            "does not match",
            "correct",
        ),
        ("name: north", "name: north\nname: south", "2: name", "this key stands twice", "keep one of them"),
        ("name: north", "name: [north", "2", "not valid YAML", "mend the syntax"),
        ("name: north", "name: north\nssh: {user: 'a;b'}", "2: ssh.user", "does not match", "correct"),
    ],
)
def test_a_mistake_names_line_field_reason_and_hint(old: str, new: str, where: str, reason: str, hint: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    assert found[0][0] == f"site.yml:{where}"
    assert reason in found[0][1]
    assert hint in found[0][2]


def test_all_mistakes_are_told_at_once() -> None:
    text = GOOD.replace("10.0.0.3", "10.0.0.2").replace(", agent_port: 6001", "").replace("[storage]", "[master]")
    assert [where for where, _, _ in problems(text)] == [
        "site.yml:4: nodes[1].address",
        "site.yml:2: nodes",
        "site.yml:4: nodes[1]",
        "site.yml:8: storage[1]",
    ]


def test_a_node_of_storage_runs_one_server() -> None:
    text = GOOD + "  - {kind: nfs, name: more, path: /srv/more, mount_path: /mnt/more, server: kernel}\n"
    assert problems(text) == [
        (
            "site.yml:9: storage[2].server",
            "s1 runs the server ganesha already",
            "give all storages of a node the same server",
        )
    ]


def test_sessions_use_the_first_storage_that_workers_have() -> None:
    text = GOOD.replace("kind: external", "kind: nfs").replace(
        "/srv/shared}", "/srv/shared, mount_path: /a, clients: [master]}"
    )
    found = site(text)
    assert [worker_path(storage) for storage in found.storage] == [None, "/mnt/penstock"]
    assert found.session_pvc_root == "/mnt/penstock"


def test_a_storage_server_exports_each_folder_once() -> None:
    text = GOOD + "  - {kind: nfs, name: more, path: /srv/archive, mount_path: /mnt/more}\n"
    assert problems(text) == [
        ("site.yml:9: storage[2].path", "s1 exports /srv/archive already, as archive", "choose another folder")
    ]


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("path: /srv/archive", "path: /etc", "site.yml:8: storage[1].path"),
        ("path: /srv/archive", "path: /srv/archive, mount_path: /usr/lib", "site.yml:8: storage[1].mount_path"),
        ("path: /srv/shared", "path: /dev/shm", "site.yml:7: storage[0].path"),
    ],
)
def test_a_storage_is_no_folder_of_the_system(old: str, new: str, where: str) -> None:
    ((found, reason, hint),) = problems(GOOD.replace(old, new))
    assert found == where
    assert reason.endswith("belongs to the system")
    assert hint == "choose a folder such as /srv/shared"


@pytest.mark.parametrize("opened", ["/srv", "/srv/shared", "/srv/shared/team-a"])
def test_no_opened_folder_overlaps_the_volumes_of_all_projects(opened: str) -> None:
    ((where, reason, _),) = problems(f"{EXAMPLE}\nsession_host_paths: [{opened}]\n")
    assert where.endswith("session_host_paths[0]")
    assert "overlap: who mounts it has those of every project" in reason


@pytest.mark.parametrize("opened", ["10.9.0.7:443", "10.9.0.0/16", "0.0.0.0/0", "10.0.0.4:27000", "10.0.0.2:53/udp"])
def test_a_site_opens_ways_out_for_sessions(opened: str) -> None:
    assert site(f"{GOOD}sessions: {{egress: ['{opened}']}}\n").sessions.egress == (opened,)


@pytest.mark.parametrize(
    ("opened", "reason"),
    [
        ("10.0.0.4", "10.0.0.4 is s1 with all that it serves"),
        ("10.0.0.4:2049", "10.0.0.4:2049 opens NFS, which knows no users, of s1 to every session"),
        ("10.0.0.4:2000-3000", "10.0.0.4:2000-3000 opens NFS, which knows no users, of s1 to every session"),
        ("10.0.0.2:22", "10.0.0.2:22 opens sshd of m1 to every session"),
        ("10.0.0.3:6001", "10.0.0.3:6001 opens the agent of w1 to every session"),
        (
            "storage:27000",
            "storage:27000 is no destination; write ADDRESS[/BITS]",
        ),
        ("172.17.0.1:22", "172.17.0.1:22 is an address of sessions, or of the worker towards them"),
        ("172.17.4.0/24", "172.17.4.0/24 is an address of sessions"),
        ("100.96.0.2:80", "100.96.0.2:80 is an address of sessions"),
        ("169.254.169.254:80", "169.254.169.254/32 is no place of its own in a network"),
    ],
)
def test_what_would_open_a_node_as_a_whole_is_refused(opened: str, reason: str) -> None:
    ((where, said, _),) = problems(f"{GOOD}sessions: {{egress: ['{opened}']}}\n")
    assert where == "site.yml:9: sessions.egress[0]"
    assert reason in said


def test_where_no_time_zone_is_known_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a bare node, which becomes the controller."""
    monkeypatch.setattr("appliance.site.site_file.available_timezones", set)
    assert site(GOOD + "time: {zone: Asia/Kathmandu}\n").time.zone == "Asia/Kathmandu"
