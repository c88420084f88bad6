"""Mistakes in a site file: each says line, field, reason and hint."""

from __future__ import annotations

import pytest

from tests.unit.appliance.site.written import GOOD, check_mistake, problems, site


@pytest.mark.parametrize(
    ("old", "new", "where", "reason", "hint"),
    [
        ("name: north", "name: north\ncolour: red", "2: colour", "unknown key", "remove the key, or correct"),
        ("name: north\n", "", "1: name", "this is required", "add it"),
        (
            "name: north",
            "name: north\ntime: {zone: Asia/Seol}",
            "2: time.zone",
            "there is no time zone",
            "mean Asia/Seoul?",
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
    check_mistake(old, new, where, reason, hint)


def test_all_mistakes_are_told_at_once() -> None:
    text = GOOD.replace("10.0.0.3", "10.0.0.2").replace(", agent_port: 6001", "").replace("[storage]", "[master]")
    assert [where for where, _, _ in problems(text)] == [
        "site.yml:4: nodes[1].address",
        "site.yml:2: nodes",
        "site.yml:4: nodes[1]",
        "site.yml:8: storage[1]",
    ]


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
