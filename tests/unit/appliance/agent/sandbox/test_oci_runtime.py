"""What the runtime does to a container's configuration before runc reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.agent.sandbox import oci_runtime
from appliance.agent.sandbox.confinement import Confinement
from common.sandbox import Sandbox, SandboxRule

CONFINED = Confinement(
    id="c1",
    session_id="s1",
    listener="/run/agent.sock",
    sandbox=Sandbox(name="strict", rules=[SandboxRule(calls=["mkdir"])]),
).model_dump_json()
SECCOMP = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["mkdir", "read"], "action": "SCMP_ACT_ALLOW"}]}


def config(*environment: str, seccomp: Any = SECCOMP) -> dict[str, Any]:
    return {"process": {"env": list(environment), "cwd": "/"}, "linux": {"seccomp": seccomp, "cgroupsPath": "x"}}


def test_the_filter_is_narrowed_and_asks_the_agent() -> None:
    before = config("A=1", f"PENSTOCK_SANDBOX={CONFINED}")
    after = oci_runtime.sandboxed(before)
    seccomp = after["linux"]["seccomp"]
    assert (seccomp["listenerPath"], seccomp["listenerMetadata"]) == ("/run/agent.sock", CONFINED)
    assert seccomp["syscalls"] == [
        {"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"},
        {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
    ]
    assert after["process"] == {"env": ["A=1", "PENSTOCK_SANDBOX=strict"], "cwd": "/"}
    assert after["linux"]["cgroupsPath"] == "x"


def test_of_a_variable_that_stands_there_twice_the_engines_last_word_counts() -> None:
    after = oci_runtime.sandboxed(config("PENSTOCK_SANDBOX={}", f"PENSTOCK_SANDBOX={CONFINED}"))
    assert after["linux"]["seccomp"]["listenerMetadata"] == CONFINED


@pytest.mark.parametrize(
    ("before", "reason"),
    [(config("A=1"), "nothing says which"), (config(f"PENSTOCK_SANDBOX={CONFINED}", seccomp=None), "no filter")],
)
def test_a_container_without_a_sandbox_or_a_filter_is_not_created(before: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        oci_runtime.sandboxed(before)


@pytest.mark.parametrize("bundle", ["--bundle {}", "--bundle={}", "-b {}"])
def test_the_configuration_is_found_by_runcs_own_arguments(tmp_path: Path, bundle: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(f"PENSTOCK_SANDBOX={CONFINED}")))
    words = ["--root", "/run/x", "--log", "/l", "create", *bundle.format(tmp_path).split(), "--pid-file", "p", "id"]
    oci_runtime.prepare(words)
    assert json.loads(path.read_text())["linux"]["seccomp"]["listenerPath"] == "/run/agent.sock"


def test_a_reason_is_written_where_the_engine_reads_those_of_the_runtime(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text('{"level":"info"}\n')
    oci_runtime.fail(["--log", str(log), "create"], "no room")
    assert json.loads(log.read_text().splitlines()[-1]) == {"level": "error", "msg": "no room"}
    oci_runtime.fail(["create"], "no room")
