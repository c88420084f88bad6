"""The site file: what is accepted, and what comes of it."""

from __future__ import annotations

import pytest

from appliance.site.model import NodeRole, worker_path
from tests.unit.appliance.site.example import EXAMPLE
from tests.unit.appliance.site.written import GOOD, problems, site


def test_the_example_is_valid() -> None:
    example = site(EXAMPLE.read_text())
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


def test_sessions_use_the_first_storage_that_workers_have() -> None:
    text = GOOD.replace("kind: external", "kind: nfs").replace(
        "/srv/shared}", "/srv/shared, mount_path: /a, clients: [master]}"
    )
    found = site(text)
    assert [worker_path(storage) for storage in found.storage] == [None, "/mnt/penstock"]
    assert found.session_pvc_root == "/mnt/penstock"


@pytest.mark.parametrize("opened", ["10.9.0.7:443", "10.9.0.0/16", "0.0.0.0/0", "10.0.0.4:27000", "10.0.0.2:53/udp"])
def test_a_site_opens_ways_out_for_sessions(opened: str) -> None:
    assert site(f"{GOOD}sessions: {{egress: ['{opened}']}}\n").sessions.egress == (opened,)
