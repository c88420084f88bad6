"""The agent's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.agent.settings import load
from common.errors import InputError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name in ("ca.crt", "node.crt", "node.key"):
        (tmp_path / name).write_text("PEM")
    return {
        "PENSTOCK_AGENT_NAME": "worker1",
        "PENSTOCK_AGENT_ADDRESS": "10.0.0.2",
        "PENSTOCK_AGENT_API_URL": "https://master1:56789",
        "PENSTOCK_AGENT_CA": str(tmp_path / "ca.crt"),
        "PENSTOCK_AGENT_CERT": str(tmp_path / "node.crt"),
        "PENSTOCK_AGENT_KEY": str(tmp_path / "node.key"),
        "PENSTOCK_AGENT_ALLOWED": "master1, penstock",
        "HOME": "/root",
    }


def test_lists_and_defaults(environment: dict[str, str]) -> None:
    settings = load({**environment, "PENSTOCK_AGENT_MOUNT_ROOTS": "/mnt/a:/mnt/b"})
    assert settings.allowed == ("master1", "penstock")
    assert settings.mount_roots == (Path("/mnt/a"), Path("/mnt/b"))
    assert settings.port == 6001
    assert settings.simulated_gpus == 0
    assert load(environment).mount_roots == ()


def test_who_may_reach_the_ports_of_sessions_and_where(environment: dict[str, str]) -> None:
    settings = load(environment)
    assert (settings.edges, settings.port_range) == (("master1", "penstock"), (57000, 57999))
    ours = {"PENSTOCK_AGENT_EDGE_NAMES": "edge1", "PENSTOCK_AGENT_PORT_RANGE": "40000-40010"}
    settings = load({**environment, **ours})
    assert (settings.edges, settings.port_range) == (("edge1",), (40000, 40010))


def test_how_gpu_shares_are_held(environment: dict[str, str]) -> None:
    settings = load(environment)
    assert settings.enforcement == ["driver", "mig", "shim", "mps", "none"]
    assert (settings.gpu_compute, settings.gpu_period_ms, settings.gpu_slack_mib) == ("strict", 200, 512)
    assert settings.accelerators == ["nvidia"]
    ours = {
        "PENSTOCK_AGENT_ENFORCEMENT": "shim, driver",
        "PENSTOCK_AGENT_GPU_COMPUTE": "fair",
        "PENSTOCK_AGENT_ACCELERATORS": "nvidia other",
    }
    settings = load({**environment, **ours})
    assert settings.enforcement == ["shim", "driver"]
    assert (settings.gpu_compute, settings.accelerators) == ("fair", ["nvidia", "other"])


def test_systemd_says_where_and_how_often_it_wants_signs_of_life(environment: dict[str, str]) -> None:
    assert (load(environment).notify_socket, load(environment).watchdog_usec) == ("", 0)
    settings = load(environment | {"NOTIFY_SOCKET": "/run/systemd/notify", "WATCHDOG_USEC": "30000000"})
    assert (settings.notify_socket, settings.watchdog_usec) == ("/run/systemd/notify", 30_000_000)


def test_an_agent_may_stand_for_a_cluster(environment: dict[str, str], tmp_path: Path) -> None:
    assert load(environment).kubernetes_api == ""
    cluster = {
        "PENSTOCK_AGENT_KUBERNETES_API": "https://10.0.0.50:6443",
        "PENSTOCK_AGENT_KUBERNETES_CA": str(tmp_path / "ca.crt"),
        "PENSTOCK_AGENT_KUBERNETES_TOKEN": str(tmp_path / "token"),
        "PENSTOCK_AGENT_KUBERNETES_CLAIMS": "/mnt/penstock=volumes:/mnt/data=data",
        "PENSTOCK_AGENT_KUBERNETES_MACHINES": "pool=a",
        "PENSTOCK_AGENT_KUBERNETES_TOLERATIONS": '[{"key": "team", "operator": "Exists"}]',
        "PENSTOCK_AGENT_KUBERNETES_POD_TEMPLATE": '{"spec": {"hostUsers": false}}',
    }
    with pytest.raises(InputError, match="write the token of the agent's service account there"):
        load(environment | cluster)
    (tmp_path / "token").write_text("secret")
    settings = load(environment | cluster)
    assert settings.kubernetes_claims == {"/mnt/penstock": "volumes", "/mnt/data": "data"}
    assert settings.kubernetes_machines == {"pool": "a"}
    assert [item.key for item in settings.kubernetes_tolerations] == ["team"]
    assert settings.kubernetes_pod_template.spec.host_users is False


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("PENSTOCK_AGENT_KUBERNETES_API", "http://10.0.0.50", "does not match"),
        (
            "PENSTOCK_AGENT_KUBERNETES_CLAIMS",
            "/mnt/penstock",
            "a pair is written NAME=VALUE, and /mnt/penstock is none",
        ),
        ("PENSTOCK_AGENT_KUBERNETES_CLAIMS", "/mnt/penstock=", "does not match"),
        ("PENSTOCK_AGENT_KUBERNETES_POD_TEMPLATE", '{"spec": {"hostPID": true}}', "no rights of its machine"),
        ("PENSTOCK_AGENT_NAME", None, "the variable is not set"),
        ("PENSTOCK_AGENT_ALLOWED", " ", "is empty"),
        ("PENSTOCK_AGENT_PORT", "70000", "is more than 65535"),
        ("PENSTOCK_AGENT_SIMULATED_GPUS", "17", "is more than 16"),
        ("PENSTOCK_AGENT_API_URL", "http://master1", "does not match"),
        ("PENSTOCK_AGENT_PORT_RANGE", "57999-57000", "57999 is above 57000"),
        ("PENSTOCK_AGENT_PORT_RANGE", "57000", "written FIRST-LAST"),
        ("PENSTOCK_AGENT_PIDS_LIMIT", "0", "is less than 64"),
        ("PENSTOCK_AGENT_ENFORCEMENT", "shim magic", "'driver', 'mig', 'shim', 'mps' or 'none'"),
        ("PENSTOCK_AGENT_ENFORCEMENT", "shim shim", "stands in the order twice"),
        ("PENSTOCK_AGENT_ENFORCEMENT", " ", "is empty"),
        ("PENSTOCK_AGENT_GPU_COMPUTE", "some", "'off', 'strict' or 'fair'"),
        ("PENSTOCK_AGENT_GPU_PERIOD_MS", "5", "is less than 20"),
        ("PENSTOCK_AGENT_COLOUR", "red", "unknown setting"),
        ("PENSTOCK_AGENT_CERT", "/nowhere/node.crt", "there is no file /nowhere/node.crt"),
    ],
)
def test_what_is_wrong_is_named_by_its_variable(
    environment: dict[str, str], variable: str, value: str | None, reason: str
) -> None:
    changed = {**environment, variable: value}
    with pytest.raises(InputError) as caught:
        load({key: text for key, text in changed.items() if text is not None})
    [problem] = caught.value.problems
    assert problem.where == variable
    assert reason in problem.reason
    assert problem.hint
