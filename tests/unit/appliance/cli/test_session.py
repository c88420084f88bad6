"""The commands of sessions: what they ask of the API, and what they show."""

from __future__ import annotations

import json
import re
from http.client import IncompleteRead

import pytest

from appliance.cli import config, output
from common.errors import ConflictError, InputError
from tests.unit.appliance.cli.conftest import URL, Answer, FakeApi, Run
from tests.unit.appliance.cli.samples import container, gpu_share, session, waiting

REASON = "project team-a holds 1 of 1 GPU"


def test_get_golden(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    found = session(
        created_at="2026-01-02T03:04:00+00:00",
        expires_at="2026-01-02T05:04:05+00:00",
        extended_s=3600,
        cpu_milli=2500,
        memory_mib=6144,
        kind="interactive",
        replicas=2,
        held_milli=1000,
        within="switch",
        containers=[container(), container(rank=1, node="worker2", status="failed", error="no GPU", exit_code=1)],
        urls=["https://edge:9443/first-8888/", "https://edge:9443/first-6006/"],
    )
    logged_in.on("GET", "/sessions/first", found)
    code, out, _ = run("get", "first")
    assert code == 0
    assert out == (
        "Name:          first\n"
        "Status:        Running\n"
        "Project:       team-a\n"
        "User:          alice\n"
        "Access:        project\n"
        "Type:          interactive, priority 50\n"
        "Image:         python:3.11\n"
        "Command:       python3 train.py '--name=a b'\n"
        "Containers:    2, within a switch where it can be, each with:\n"
        "GPUs:          0.5\n"
        "Enforcement:   none\n"
        "CPUs:          2.5\n"
        "Memory:        6.0G\n"
        "Shared memory: 64 MiB\n"
        "Disk:          50.0G\n"
        "Nodes:         worker1, worker2\n"
        "URL:           https://edge:9443/first-8888/\n"
        "URL:           https://edge:9443/first-6006/\n"
        "Created:       2026-01-02T03:04:00+00:00\n"
        "Started:       2026-01-02T03:04:05.678+00:00\n"
        "Time limit:    2026-01-02T05:04:05+00:00, extended by 1h\n"
        "\n"
        "CONTAINER  NODE     STATUS   GPUS                  EXIT CODE  ERROR\n"
        "0          worker1  Running  0.5 of SIM-worker1-0  -\n"
        "1          worker2  Failed   0.5 of SIM-worker1-0  1          no GPU\n"
    )
    assert logged_in.last.query == {"project": "team-a"}


def test_get_says_why_a_session_waits_and_its_place_in_the_queue(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", waiting(reason=REASON, position=2, attempt=1, starts_at="2027-01-02T03:00Z"))
    out = run("get", "third")[1]
    assert f"Reason:         {REASON}\n" in out
    assert "Queue position: 2\n" in out
    assert "Attempt:        2\n" in out
    assert "Starts at:      2027-01-0" in out
    assert "CONTAINER" not in out


def test_get_shows_the_memory_of_a_share_and_how_it_is_held(logged_in: FakeApi, run: Run) -> None:
    v100 = gpu_share(uuid="GPU-1", model="Tesla V100-SXM2-32GB", memory_mib=16255)
    warning = "uses 17000 MiB of GPU-1, and its share has 16255 MiB"
    held = container(enforcement="shim", warning=warning, gpus=[v100])
    logged_in.on("GET", "/sessions/first", session(containers=[held], enforcement="mps", gpus=[v100]))
    out = run("get", "first")[1]
    assert "GPUs:          0.5\n" in out
    assert "Enforcement:   shim, asked for: mps or better\n" in out
    assert "On:            0.5 of GPU-1 (Tesla V100-SXM2-32GB, 16255 MiB)\n" in out
    assert f"Warning:       {warning}\n" in out


def test_get_shows_the_ways_of_nccl_in_its_own_words(logged_in: FakeApi, run: Run) -> None:
    p2p, ib = "NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC", "NCCL INFO Ring 00 : 0 -> 1 via NET/IB/0"
    said = {"version": "2.4.8", "p2p": True, "p2p_line": p2p, "ib": True, "ib_line": ib}
    told = container(nccl={**said, "gdrdma": False, "gdrdma_line": ib})
    chosen = "NCCL INFO Using network IB"
    other = container(
        rank=1,
        nccl={**said, "p2p": None, "p2p_line": "", "ib": None, "ib_line": chosen, "gdrdma": None, "gdrdma_line": ""},
    )
    logged_in.on("GET", "/sessions/first", session(containers=[told]))
    out = run("get", "first")[1]
    assert re.search(rf"^P2P: +used: {re.escape(p2p)}$", out, re.MULTILINE)
    assert re.search(rf"^InfiniBand or RoCE: +used: {re.escape(ib)}$", out, re.MULTILINE)
    assert re.search(rf"^GPUDirect RDMA: +not used: {re.escape(ib)}$", out, re.MULTILINE)
    logged_in.on("GET", "/sessions/first", session(containers=[told, other, container(rank=2)], replicas=3))
    out = run("get", "first")[1]
    assert re.search(rf"^InfiniBand or RoCE: +1: not known: {re.escape(chosen)}$", out, re.MULTILINE)
    assert "2: " not in out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"p2p": True, "rdma": True}, "P2P by NVLink, RDMA"),
        ({"p2p": False, "rdma": False}, "no P2P"),
        ({"p2p": None, "rdma": True}, "RDMA"),
    ],
)
def test_get_shows_the_ways_that_were_asked_for(
    logged_in: FakeApi, run: Run, asked: dict[str, bool | None], said: str
) -> None:
    logged_in.on("GET", "/sessions/first", session(**asked))
    assert f"Asked for:     {said}\n" in run("get", "first")[1]


def test_get_shows_what_a_slice_takes_beyond_what_was_asked_for(logged_in: FakeApi, run: Run) -> None:
    device = gpu_share(uuid="MIG-1", model="A100", profile="2g.10gb", milli=285, memory_mib=9856)
    held = container(enforcement="mig", gpus=[device])
    logged_in.on("GET", "/sessions/first", session(containers=[held], gpu_milli=250, held_milli=285))
    out = run("get", "first")[1]
    assert "GPUs:          0.25\n" in out
    assert "Taken of GPUs: 0.285\n" in out
    assert "On:            0.285 of MIG-1 (A100 2g.10gb, 9856 MiB)\n" in out


def test_get_shows_two_whole_gpus_and_a_half_one_a_line(logged_in: FakeApi, run: Run) -> None:
    parts = [gpu_share(index=n, uuid=f"GPU-{n}", milli=milli) for n, milli in enumerate((1000, 1000, 500))]
    logged_in.on("GET", "/sessions/first", session(gpu_milli=2500, held_milli=2500, containers=[container(gpus=parts)]))
    lines = [line for line in run("get", "first")[1].splitlines() if line.startswith("On:")]
    assert [line.split()[1:4] for line in lines] == [
        ["1", "of", "GPU-0"],
        ["1", "of", "GPU-1"],
        ["0.5", "of", "GPU-2"],
    ]


@pytest.mark.parametrize(("option", "text"), [("-g", "0.25"), ("--fgpu", "0.5")])
def test_resize_asks_for_another_share(logged_in: FakeApi, run: Run, option: str, text: str) -> None:
    logged_in.on("GET", "/settings", {"fgpu_milli": 500, "step_milli": 50})
    logged_in.on("PATCH", "/sessions/first", session(resize_milli=250))
    assert run("resize", "first", option, text)[1] == "first: 0.5, changing to 0.25\n"
    assert logged_in.last.query == {"project": "team-a"}
    assert logged_in.last.body == {"gpu_milli": 250}


def test_resize_waits_until_it_is_done(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cli.session.WAIT_STEP_S", 0)
    logged_in.on("PATCH", "/sessions/first", session(resize_milli=250))
    logged_in.on("GET", "/sessions/first", session(gpu_milli=250, held_milli=250))
    assert run("resize", "first", "-g", "0.25", "--wait") == (0, "first: 0.25\n", "")


def test_resize_says_what_was_refused(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cli.session.WAIT_STEP_S", 0)
    reason = "its share stays 0.5 GPU: 0.1 GPU is free on GPU-1 of worker1, and 0.2 more is asked for"
    logged_in.on("PATCH", "/sessions/first", session(resize_milli=700))
    logged_in.on("GET", "/sessions/first", session(reason=reason))
    code, out, err = run("resize", "first", "-g", "0.7", "--wait")
    assert (code, out) == (ConflictError.exit_code, "first: 0.5\n")
    assert reason in err


@pytest.mark.parametrize("options", [(), ("-g", "0.5", "--fgpu", "1")])
def test_resize_needs_one_share(logged_in: FakeApi, run: Run, options: tuple[str, ...]) -> None:
    code, _, err = run("resize", "first", *options)
    assert code == InputError.exit_code
    assert "write `-g 0.5`, or `--fgpu 1` to count in fGPU" in err


def test_get_shows_mounts_the_names_of_variables_and_an_interruption(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    mounts = [
        {"volume": "data", "source": None, "target": "/data", "read_only": True},
        {"volume": None, "source": "/mnt", "target": "/mnt", "read_only": False},
    ]
    told = {"interrupted": "restarted by bob", "interrupted_at": "2026-01-02T03:04:05Z", "attempt": 1}
    logged_in.on("GET", "/sessions/first", session(environment=["A", "TOKEN"], mounts=mounts, **told))
    out = run("get", "first")[1]
    assert "Interrupted:   2026-01-02T03:04:05Z, restarted by bob\n" in out
    assert "Environment:   A, TOKEN\n" in out
    assert "Mount:         /data: volume data, for reading only\nMount:         /mnt: /mnt of the node\n" in out


def test_get_says_why_an_elastic_one_does_not_grow(logged_in: FakeApi, run: Run) -> None:
    elastic = {"replicas": 2, "min_replicas": 2, "max_replicas": 8}
    logged_in.on("GET", "/sessions/first", session(**elastic, not_grown="no node has 1 GPU free"))
    assert "Does not grow: no node has 1 GPU free\n" in run("get", "first")[1]


def test_restart_puts_it_back_into_the_queue(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cli.waiting.WAIT_STEP_S", 0)
    logged_in.on("POST", "/sessions/first/restart", session(state="TERMINATING"), status=202)
    assert run("restart", "first") == (0, "first: Terminating\n", "")
    assert logged_in.last.query == {"project": "team-a"}
    logged_in.on("GET", "/sessions/5c7b", waiting(state="PENDING"))
    logged_in.then("GET", "/sessions/5c7b", session())
    assert run("restart", "first", "--wait") == (0, "first: Running\n", "")


def test_get_says_why_a_session_failed(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first", session(state="FAILED", reason="exit code 0?", exit_code=0))
    out = run("get", "first")[1]
    assert "Reason:        exit code 0?\n" in out
    assert "Exit code:     0\n" in out


def test_extend_puts_off_the_end(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "moment", lambda time: time or "")
    logged_in.on("POST", "/sessions/first/extend", session(expires_at="2026-01-02T05:04:05+00:00"))
    assert run("extend", "first", "1h30m") == (0, "first: runs until 2026-01-02T05:04:05+00:00\n", "")
    assert (logged_in.last.body, logged_in.last.query) == ({"seconds": 5400}, {"project": "team-a"})
    assert run("extend", "first", "soon")[0] == 2


def test_extend_refuses_what_is_less_than_none(logged_in: FakeApi, run: Run) -> None:
    assert run("extend", "first", "-5m") == (
        2,
        "",
        "error: TIME: '-5m' is below 0, and begins like an option. Hint: see `penstock extend -h`\n",
    )


def test_extend_tells_what_the_api_refuses_by_its_argument(logged_in: FakeApi, run: Run) -> None:
    logged_in.refuse("POST", "/sessions/first/extend", 422, "seconds", "is less than 1", "write 1 or more")
    assert run("extend", "first", "0m")[2] == "error: TIME: is less than 1. Hint: write 1 or more\n"


def test_who_sees_a_session_is_changed(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/sessions/third", waiting(access="private"))
    assert run("access", "third", "private") == (0, "third: private\n", "")
    assert (logged_in.last.body, logged_in.last.query) == ({"access": "private"}, {"project": "team-a"})


def test_priority_among_those_of_the_project(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/sessions/third", waiting(priority=80))
    assert run("priority", "third", "80") == (0, "third: priority 80\n", "")
    assert (logged_in.last.body, logged_in.last.query) == ({"priority": 80}, {"project": "team-a"})


@pytest.mark.parametrize(("field", "argument"), [("name", "NAME"), ("priority", "N")])
def test_what_is_refused_of_a_priority_is_named_by_its_argument(
    logged_in: FakeApi, run: Run, field: str, argument: str
) -> None:
    logged_in.refuse("PATCH", "/sessions/third", 409, field, "session third runs", "do it earlier")
    _, _, err = run("priority", "third", "80")
    assert err == f"error: {argument}: session third runs. Hint: do it earlier\n"


def test_get_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/third", third := waiting(reason=REASON))
    assert json.loads(run("get", "third", "-o", "json")[1]) == third


def test_logs_pass_the_bytes_through(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/first/logs", "epoch 1\n손실 0.5\n".encode())
    assert run("logs", "first", "-f", "--tail", "2") == (0, "epoch 1\n손실 0.5\n", "")
    assert logged_in.last.query == {"project": "team-a", "follow": "true", "tail": "2"}


def test_a_log_that_breaks_off_is_an_error(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_answer: Answer, _size: int) -> bytes:
        raise IncompleteRead(b"")

    monkeypatch.setattr(Answer, "read1", broken)
    logged_in.on("GET", "/sessions/first/logs", b"epoch 1\n")
    logged_in.on("GET", "/sessions/first", waiting())
    assert run("logs", "first", "-f") == (5, "", f"error: {URL}: its answer broke off. Hint: try again\n")


def test_a_log_that_is_cut_says_what_right_was_lost(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_answer: Answer, _size: int) -> bytes:
        raise IncompleteRead(b"")

    monkeypatch.setattr(Answer, "read1", cut)
    logged_in.on("GET", "/sessions/first/logs", b"epoch 1\n")
    logged_in.refuse("GET", "/sessions/first", 404, "project", "there is no project team-a", "")
    assert run("logs", "first", "-f") == (6, "", "error: project: there is no project team-a.\n")


def test_an_empty_name_is_refused_before_anything_is_asked(logged_in: FakeApi, run: Run) -> None:
    for command in (["get", ""], ["delete", ""], ["user", "delete", ""], ["project", "delete", ""]):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert err == "error: NAME: the name is empty. Hint: give a name\n"
    assert not logged_in.calls


@pytest.fixture
def some_are_there(logged_in: FakeApi) -> FakeApi:
    """Sessions `a`, which is ending, and `d`, which has ended; `b` and `c` are unknown."""
    logged_in.on("DELETE", "/sessions/a", session(name="a", state="TERMINATING"), status=202)
    for name in ("b", "c"):
        logged_in.refuse("DELETE", f"/sessions/{name}", 404, "name", f"team-d has no session {name}", "look")
    logged_in.on("DELETE", "/sessions/d", session(name="d", state="TERMINATED"), status=200)
    return logged_in


MISSING = "error: name: team-d has no session b. Hint: look\nerror: name: team-d has no session c. Hint: look\n"


def test_delete_ends_what_is_there_and_then_names_what_is_not(some_are_there: FakeApi, run: Run) -> None:
    names = ("a", "b", "c", "d")
    assert run("delete", "-p", "team-d", *names) == (6, "a: Terminating\nd: Terminated\n", MISSING)
    assert [(call.path, call.query) for call in some_are_there.calls] == [
        (f"/api/v1/sessions/{name}", {"project": "team-d"}) for name in names
    ]


def test_delete_for_programs_prints_what_is_there(some_are_there: FakeApi, run: Run) -> None:
    code, out, err = run("delete", "-p", "team-d", "a", "b", "c", "d", "-o", "json")
    assert (code, [one["name"] for one in json.loads(out)], err) == (6, ["a", "d"], MISSING)


def test_delete_of_what_is_not_there_succeeds_where_that_is_said(some_are_there: FakeApi, run: Run) -> None:
    words = ("delete", "-p", "team-d", "--ignore-not-found")
    assert run(*words, "a", "b", "c", "d") == (0, "a: Terminating\nd: Terminated\n", "")
    assert run(*words, "b", "c") == (0, "", "")
    assert run(*words, "b", "-o", "json") == (0, "[]\n", "")


def test_delete_hides_no_other_refusal_behind_what_is_not_there(some_are_there: FakeApi, run: Run) -> None:
    some_are_there.refuse("DELETE", "/sessions/e", 403, "", "session e belongs to ada", "ask ada")
    refusal = "error: session e belongs to ada. Hint: ask ada\n"
    names = ("b", "c", "e", "d")
    assert run("delete", "-p", "team-d", *names) == (8, "d: Terminated\n", refusal + MISSING)
    assert run("delete", "-p", "team-d", "--ignore-not-found", *names) == (8, "d: Terminated\n", refusal)


def test_commands_of_one_session_need_a_project(api: FakeApi, run: Run) -> None:
    config.save(config.Config(URL, "k", "1"))
    for command in (["get", "x"], ["logs", "x"], ["delete", "x"], ["submit", "x", "-i", "y", "-g", "1"], ["bash", "x"]):
        code, _, err = run(*command)
        assert code == 2
        assert err == (
            "error: project: no project is chosen. Hint: run `penstock project set NAME`, or add `-p NAME`\n"
        )
    assert not api.calls


def test_names_cannot_leave_their_place_in_the_path(logged_in: FakeApi, run: Run) -> None:
    logged_in.refuse("GET", "/sessions/..%2Fusers%3Fx", 422, "name", "is not a name", "correct it")
    assert run("get", "../users?x")[0] == 2
