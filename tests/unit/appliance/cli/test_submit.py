"""`penstock submit`: what each option asks of the API."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.unit.appliance.cli.conftest import FakeApi, Run
from tests.unit.appliance.cli.samples import session


def submit(run: Run, api: FakeApi, line: str) -> Any:
    api.on("POST", "/sessions", session(), status=201)
    code, _, err = run("submit", *shlex.split(line))
    assert (code, err) == (0, "")
    return api.last.body


def test_all_that_several_containers_have_is_shown_as_in_the_list(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/sessions", session(state="PENDING", gpu_milli=4000, replicas=3), status=201)
    assert (
        run("submit", "first", "-i", "python", "-g", "4", "--replicas", "3")[1]
        == "first: Pending, 12 GPU, project team-a\n"
    )


def test_what_was_asked_is_sent_and_the_state_is_shown(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/sessions", session(state="PENDING"), status=201)
    code, out, _ = run("submit", "first", "-i", "python", "-g", "0.5")
    assert (code, out) == (0, "first: Pending, 0.5 GPU, project team-a\n")
    assert logged_in.last.body == {
        "name": "first",
        "project": "team-a",
        "image": "python",
        "gpu_milli": 500,
        "created_by_cli": True,
    }
    assert logged_in.last.headers["Authorization"] == "Bearer pk_secret"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("-g 1 --interactive", {"gpu_milli": 1000, "interactive": True}),
        ("-g 1 --kind service", {"kind": "service"}),
        ("-g 0.6 -p team-b", {"gpu_milli": 600, "project": "team-b"}),
        ("-g -1", {"gpu_milli": -1000}),
        ("-g 1 --command sleep --args infinity", {"command": ["sleep"], "args": ["infinity"]}),
        ("-g 1 --command 'sh -c' --args 'a; b'", {"command": ["sh", "-c"], "args": ["a; b"]}),
        ('-g 1 --args="--base_url=z" --command=start.sh', {"command": ["start.sh"], "args": ["--base_url=z"]}),
        ("-g 1 --args --a=1 --args --b", {"args": ["--a=1", "--b"]}),
        ("-g 1 -e EPOCHS=10 --env EMPTY=", {"environment": {"EPOCHS": "10", "EMPTY": ""}}),
        ("-g 1 --service-type=ingress --port 8888 --port 6006", {"ports": [8888, 6006]}),
        ("-g 1 --access private", {"access": "private"}),
        (
            "-g 1 --pvc test:/tmp/pvc1mount --pvc data:/data:ro",
            {
                "pvcs": [
                    {"name": "test", "target": "/tmp/pvc1mount", "read_only": False},
                    {"name": "data", "target": "/data", "read_only": True},
                ]
            },
        ),
        (
            "-g 1 -v /mnt:/mnt -v /tmp:/data:ro",
            {
                "volumes": [
                    {"source": "/mnt", "target": "/mnt", "read_only": False},
                    {"source": "/tmp", "target": "/data", "read_only": True},
                ]
            },
        ),
        ("-g 1 --disk 20G", {"disk_mib": 20480}),
        ("-g 1 --local-image --large-shm", {"local_image": True, "large_shm": True}),
        ("--preset medium-gpu", {"preset": "medium-gpu"}),
        ("--preset small --cpu 4 --memory 8G --shm 1G", {"cpu_milli": 4000, "memory_mib": 8192, "shm_mib": 1024}),
        ("--cpu 0.5", {"cpu_milli": 500, "gpu_milli": 0}),
        ("-g 2 --p2p", {"p2p": True}),
        ("-g 2 --no-p2p", {"p2p": False}),
        ("-g 1 --replicas 2 --rdma", {"replicas": 2, "rdma": True}),
        ("-g 1 --replicas 2..8", {"replicas": 2, "max_replicas": 8}),
        ("-g 1 --replicas 4 --within switch --within-required", {"replicas": 4, "within": "switch"}),
        ("-g 1 --gpu-model V100 --gpu-model P100 --group fast", {"gpu_models": ["V100", "P100"], "group": "fast"}),
        ("-g 1 --priority 80 --no-preemptible", {"priority": 80, "preemptible": False}),
        ("-g 1 --start-at 2027-01-31T22:00+09:00", {"starts_at": "2027-01-31T13:00:00+00:00"}),
        ("-g 1 --time 1d12h", {"limit_s": 129_600}),
    ],
)
def test_options(logged_in: FakeApi, run: Run, options: str, wanted: dict[str, Any]) -> None:
    body = submit(run, logged_in, f"x -i y {options}")
    assert {key: body[key] for key in wanted} == wanted


def test_what_is_not_asked_for_is_not_sent(logged_in: FakeApi, run: Run) -> None:
    assert set(submit(run, logged_in, "x -i y --preset small")) == {
        *("name", "project", "image", "created_by_cli", "preset"),
    }


@pytest.mark.parametrize(("units", "milli"), [("1", 200), ("2.5", 500), ("0.5", 100), ("-1", -200)])
def test_fgpu_counts_in_units_of_the_administrator_s_split(
    logged_in: FakeApi, run: Run, units: str, milli: int
) -> None:
    logged_in.on("GET", "/settings", {"fgpu_milli": 200, "step_milli": 100})
    assert submit(run, logged_in, f"x -i y --fgpu {units}")["gpu_milli"] == milli


def test_several_equal_sessions_in_one_request(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("POST", "/sessions/batch", [session(name=f"x-{number}") for number in (1, 2)], status=201)
    code, out, _ = run("submit", "x", "-i", "y", "-g", "1", "--count", "2")
    assert (code, out.splitlines()) == (0, [f"x-{number}: Running, 0.5 GPU, project team-a" for number in (1, 2)])
    assert logged_in.last.body["count"] == 2
    assert [
        one["name"] for one in json.loads(run("submit", "x", "-i", "y", "-g", "1", "--count", "2", "-o", "json")[1])
    ]


@pytest.mark.parametrize(("under_way", "state"), [("PREPARING", "RUNNING"), ("TERMINATING", "TERMINATED")])
def test_wait_returns_when_it_runs_or_has_ended(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch, under_way: str, state: str
) -> None:
    monkeypatch.setattr("appliance.cli.waiting.WAIT_STEP_S", 0)
    logged_in.on("POST", "/sessions", session(state="PENDING"), status=201)
    logged_in.on("GET", "/sessions/5c7b", session(state=under_way))
    logged_in.then("GET", "/sessions/5c7b", session(state=state))
    code, out, _ = run("submit", "first", "-i", "y", "-g", "1", "--wait", "-o", "json")
    assert (code, json.loads(out)["state"]) == (0, state)
    assert len(logged_in.calls) == 3


def test_wait_says_meanwhile_why(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cli.waiting.WAIT_STEP_S", 0)
    logged_in.on("POST", "/sessions", session(state="PENDING", reason="every GPU is in use"), status=201)
    logged_in.on("GET", "/sessions/5c7b", session(state="PENDING", reason="every GPU is in use"))
    logged_in.then("GET", "/sessions/5c7b", session())
    _, out, err = run("submit", "first", "-i", "y", "-g", "1", "--wait")
    assert (out, err) == ("first: Running, 0.5 GPU, project team-a\n", "first waits: every GPU is in use\n")


def test_who_stops_waiting_hears_that_it_stays(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("appliance.cli.waiting.time.sleep", interrupt)
    logged_in.on("POST", "/sessions/batch", [session(name=f"x-{one}", state="PENDING") for one in (1, 2)], status=201)
    code, out, err = run("submit", "x", "-i", "y", "-g", "1", "--count", "2", "--wait")
    assert (code, out) == (130, "")
    assert err == "x-1, x-2 stay in the queue; `penstock delete x-1 x-2` takes them out\n"
    logged_in.on("POST", "/sessions/first/restart", session(state="TERMINATING"), status=202)
    code, _, err = run("restart", "first", "--wait")
    assert (code, err) == (130, "first stays in the queue; `penstock delete first` takes it out\n")


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("cpu_milli", "--cpu"),
        ("gpu_milli", "-g"),
        ("shm_mib", "--shm"),
        ("pvcs[0].target", "--pvc"),
        ("image", "-i"),
        ("preemptible", "--preemptible"),
    ],
)
def test_what_the_api_refuses_is_named_by_its_option(logged_in: FakeApi, run: Run, field: str, option: str) -> None:
    logged_in.refuse("POST", "/sessions", 422, field, "is too much", "ask for less")
    code, _, err = run("submit", "first", "-i", "y", "-g", "1")
    assert (code, err) == (2, f"error: {option}: is too much. Hint: ask for less\n")


@pytest.mark.parametrize(
    ("options", "where", "reason"),
    [
        ("", "-g", "no share of GPUs is given"),
        ("-g 1 --fgpu 1", "-g", "the share is given twice"),
        ("-g half", "-g", "'half' is not a number of GPUs"),
        ("-g 0.0001", "-g", "finer than a thousandth"),
        ("--fgpu 0.001", "--fgpu", "not a whole number of milli-GPU"),
        ("-g 1 --command 'a \"b'", "--command", "cannot be split into words"),
        ("-g 1 --service-type ingress", "--port", "ingress needs a port"),
        ("-g 1 --pvc data", "--pvc", "'data' is no mount"),
        ("-g 1 -v /a:/b:rx", "-v", "'/a:/b:rx' is no mount"),
        ("-g 1 -v :/b", "-v", "':/b' is no mount"),
        ("-g 1 --env =3", "--env", "'=3' is no variable"),
        ("-g 1 --memory much", "--memory", "'much' is no amount of memory"),
        ("-g 1 --cpu -1", "--cpu", "'-1' is no number of cores"),
        ("-g 1 --port 8888", "--port", "a port is reached by an address"),
        ("-g 1 --start-at 2020-01-31T22:00", "--start-at", "is past"),
        ("-g 1 --start-at tomorrow", "--start-at", "'tomorrow' is no date"),
        ("-g 1 --time soon", "--time", "'soon' is no length of time"),
    ],
)
def test_bad_options_are_refused_before_anything_is_asked(
    logged_in: FakeApi, run: Run, options: str, where: str, reason: str
) -> None:
    logged_in.on("GET", "/settings", {"fgpu_milli": 200, "step_milli": 100})
    code, out, err = run("submit", "x", "-i", "y", *shlex.split(options))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {where}: ")
    assert reason in err
    assert "Hint: " in err
    assert not [call for call in logged_in.calls if call.method == "POST"]


@pytest.mark.parametrize(
    ("starting", "waiting", "said"),
    [
        (1, 0, "it would start now\n"),
        (0, 1, "it would wait, at place 3 of the queue: team-a has used up its quota\n"),
        (2, 1, "2 would start now\n1 would wait, at place 3 of the queue: team-a has used up its quota\n"),
    ],
)
def test_a_dry_run_says_what_would_become_of_it(
    logged_in: FakeApi, run: Run, starting: int, waiting: int, said: str
) -> None:
    found = {
        "starting": starting,
        "waiting": waiting,
        "reason": "team-a has used up its quota" if waiting else "",
        "cause": "quota" if waiting else "",
        "position": 3 if waiting else 0,
        **dict.fromkeys(("gpu_milli", "cpu_milli", "memory_mib", "shm_mib", "disk_mib"), 1000),
    }
    logged_in.on("POST", "/sessions/check", found)
    count = starting + waiting
    code, out, err = run("submit", "x", "-i", "y", "-g", "1", "--dry-run", *(["--count", str(count)] * (count > 1)))
    assert (code, out, err) == (0, said, "")
    assert logged_in.last.body.get("count", 1) == count


BEFORE: dict[str, Any] = {
    "name": "before",
    "state": "FAILED",
    "command": ["sh", "-c"],
    "args": ["a; b"],
    "ports": [8888],
    "gpu_milli": 250,
    "cpu_milli": 2000,
    "memory_mib": 8192,
    "shm_mib": 64,
    "disk_mib": 2048,
    "limit_s": 3600,
    "group": "fast",
    "gpu_models": ["A100"],
    "p2p": False,
    "within": "switch",
    "access": "private",
    "mounts": [
        {"volume": "data", "source": None, "target": "/data", "read_only": True},
        {"volume": None, "source": "/srv/x", "target": "/x", "read_only": False},
    ],
}
AS_BEFORE: dict[str, Any] = {
    "name": "first",
    "project": "team-a",
    "image": "python:3.11",
    "created_by_cli": True,
    "kind": "training",
    **{field: value for field, value in BEFORE.items() if field not in ("name", "state", "mounts")},
    "priority": 50,
    "preemptible": True,
    "replicas": 1,
    "within_required": False,
    "pvcs": [{"name": "data", "target": "/data", "read_only": True}],
    "volumes": [{"source": "/srv/x", "target": "/x", "read_only": False}],
}


@pytest.mark.parametrize(
    ("options", "changes", "dropped"),
    [
        ("", {}, ()),
        ("-i other", {"image": "other"}, ()),
        ("-g 1 --memory 16G", {"gpu_milli": 1000, "memory_mib": 16384}, ()),
        ("--cpu 3", {"cpu_milli": 3000}, ()),
        ("--preset small", {"preset": "small"}, ("gpu_milli", "cpu_milli", "memory_mib", "shm_mib")),
        ("--interactive", {"interactive": True}, ("kind", "priority", "preemptible")),
        ("--command python3", {"command": ["python3"]}, ("args",)),
        ("--replicas 2..4", {"replicas": 2, "max_replicas": 4}, ()),
        ("--pvc more:/more", {"pvcs": [{"name": "more", "target": "/more", "read_only": False}]}, ()),
    ],
)
def test_a_session_is_submitted_as_another_was_but_for_options(
    logged_in: FakeApi, run: Run, options: str, changes: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    logged_in.on("GET", "/sessions/before", session(**BEFORE))
    body = submit(run, logged_in, f"first --like before {options}")
    wanted = {field: value for field, value in AS_BEFORE.items() if field not in dropped} | changes
    assert body == wanted


def test_an_elastic_one_starts_small_again_and_a_start_that_has_come_is_none(logged_in: FakeApi, run: Run) -> None:
    elastic = {"replicas": 3, "min_replicas": 2, "max_replicas": 4, "starts_at": "2020-01-01T00:00:00+00:00"}
    logged_in.on("GET", "/sessions/before", session(**elastic))
    body = submit(run, logged_in, "first --like before")
    assert (body["replicas"], body["max_replicas"]) == (2, 4)
    assert "starts_at" not in body


def test_values_of_variables_are_asked_for_again(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions/before", session(name="before", environment=["EPOCHS", "TOKEN"]))
    code, _, err = run("submit", "first", "--like", "before", "-e", "EPOCHS=1")
    assert code == 2
    assert err.startswith("error: --env: before was submitted with TOKEN")
    assert "write -e TOKEN=VALUE" in err
    body = submit(run, logged_in, "first --like before -e EPOCHS=1 -e TOKEN=x")
    assert body["environment"] == {"EPOCHS": "1", "TOKEN": "x"}


def test_an_image_is_named_where_no_session_says_it(logged_in: FakeApi, run: Run) -> None:
    code, _, err = run("submit", "first", "-g", "1")
    assert (code, err) == (2, "error: -i: no image is named. Hint: name one, or a session with `--like`\n")
