"""Nodes of a site file: each mistake says line, field, reason and hint."""

from __future__ import annotations

import pytest

from tests.unit.appliance.site.written import check_mistake

POOL = "{name: a, machines: {p: a}, most: 2, cpu_milli: 1, memory_mib: 1}"


@pytest.mark.parametrize(
    ("old", "new", "where", "reason", "hint"),
    [
        ("roles: [worker], ", "roles: [worker], gpu: 4, ", "4: nodes[1].gpu", "unknown key", "remove the key"),
        ("name: w1", "name: m1", "4: nodes[1].name", "m1 is also nodes[0].name", "its own name"),
        ("10.0.0.3", "10.0.0.2", "4: nodes[1].address", "10.0.0.2 is also nodes[0].address", "its own address"),
        (
            "agent_port: 6001",
            "agent_port: 6001, ib_address: 10.0.0.4",
            "5: nodes[2].address",
            "10.0.0.4 is also nodes[1].ib_address",
            "its own address",
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
    ],
)
def test_a_mistake_in_nodes_names_line_field_reason_and_hint(
    old: str, new: str, where: str, reason: str, hint: str
) -> None:
    check_mistake(old, new, where, reason, hint)
