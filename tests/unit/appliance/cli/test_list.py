"""`penstock list`: the columns of the reference, on terminals of two widths and in a pipe."""

from __future__ import annotations

import json
import os
import sys

import pytest

from appliance.cli import config
from appliance.cli.session import BELOW, HEAD
from appliance.client.views import Session
from tests.unit.appliance.cli.conftest import URL, FakeApi, Run
from tests.unit.appliance.cli.samples import container, session, waiting

REASON = "project team-a holds 1 of 1 GPU"
NOTEBOOK = "https://10.255.174.13:9443/test-ingress-8888/"


def sessions() -> list[Session]:
    return [
        session(),
        session(
            name="test-ingress",
            state="PREPARING",
            kind="interactive",
            gpu_milli=1000,
            image="base-notebook:7",
            urls=[NOTEBOOK],
        ),
        session(name="gang", replicas=2, gpu_milli=2000, containers=[container(), container(rank=1, node="worker2")]),
        waiting(reason=REASON, created_by_cli=False),
    ]


WIDE = (
    "NAME          STATUS             AGE  NODE        IMAGE            TYPE         PROJECT  USER   GPUs  "
    "CREATED-BY-CLI  SERVICE URL(S)\n"
    "first         Running            2m   worker1     python:3.11      Training     team-a   alice  0.5   "
    "true            -\n"
    "test-ingress  ContainerCreating  2m   worker1     base-notebook:7  Interactive  team-a   alice  1     "
    f"true            {NOTEBOOK}\n"
    "gang          Running            2m   worker1 +1  python:3.11      Training     team-a   alice  4     "
    "true            -\n"
    "third         Pending            2m   -           python:3.11      Training     team-a   alice  0.5   "
    "false           -\n"
    f"third waits: {REASON}\n"
)
AT_80 = """\
NAME          STATUS          AGE  NODE        TYPE         PROJECT  USER   GPUs
  IMAGE            CREATED-BY-CLI  SERVICE URL(S)
first         Running         2m   worker1     Training     team-a   alice  0.5
  python:3.11      true            -
test-ingress  ContainerCrea…  2m   worker1     Interactive  team-a   alice  1
  base-notebook:7  true            https://10.255.174.13:9443/test-ingress-8888/
gang          Running         2m   worker1 +1  Training     team-a   alice  4
  python:3.11      true            -
third         Pending         2m   -           Training     team-a   alice  0.5
  python:3.11      false           -
third waits: project team-a holds 1 of 1 GPU
"""


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))


def test_in_a_pipe_every_session_is_one_line_with_every_column(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", sessions())
    code, out, _ = run("list")
    assert (code, out) == (0, WIDE)
    assert logged_in.last.query == {"project": "team-a", "all": "false", "limit": "1000"}


def test_on_a_wide_terminal_nothing_is_cut(logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    logged_in.on("GET", "/sessions", [session(), waiting(reason=REASON)])
    on_terminal(monkeypatch, 160)
    code, out, _ = run("list")
    assert code == 0
    assert out == (
        "NAME   STATUS   AGE  NODE     IMAGE        TYPE      PROJECT  USER   GPUs  CREATED-BY-CLI  SERVICE URL(S)\n"
        "first  Running  2m   worker1  python:3.11  Training  team-a   alice  0.5   true            -\n"
        "third  Pending  2m   -        python:3.11  Training  team-a   alice  0.5   true            -\n"
        f"third waits: {REASON}\n"
    )


def test_on_a_terminal_of_80_columns_a_session_takes_two_lines(
    logged_in: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.on("GET", "/sessions", sessions())
    on_terminal(monkeypatch, 80)
    code, out, _ = run("list")
    assert (code, out) == (0, AT_80)
    assert max(map(len, out.splitlines())) <= 80


def test_the_columns_are_those_of_the_reference() -> None:
    reference = "NAME STATUS AGE NODE IMAGE TYPE PROJECT USER GPUs CREATED-BY-CLI SERVICE"
    assert " ".join(HEAD) == f"{reference} URL(S)"
    assert set(BELOW) < set(HEAD)


def test_of_another_project_with_the_ended_ones_as_json(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", [third := waiting()])
    code, out, _ = run("list", "-p", "team-b", "--all", "-o", "json")
    assert (code, json.loads(out)) == (0, [third])
    assert logged_in.last.query == {"project": "team-b", "all": "true", "limit": "1000"}


def test_without_a_project_it_shows_all_that_the_user_may_see(api: FakeApi, run: Run) -> None:
    config.save(config.Config(URL, "k", "1"))
    api.on("GET", "/sessions", [])
    assert run("list")[0] == 0
    assert api.last.query == {"all": "false", "limit": "1000"}


def test_a_long_list_is_asked_for_page_by_page(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", [session()], X_Next="1.ab")
    logged_in.then("GET", "/sessions", [waiting()])
    code, out, _ = run("list", "-o", "json")
    assert (code, [one["name"] for one in json.loads(out)]) == (0, ["first", "third"])
    assert [call.query.get("after") for call in logged_in.calls] == [None, "1.ab"]


def test_the_queue_in_its_order_with_what_each_waits_for(logged_in: FakeApi, run: Run) -> None:
    second = waiting(name="second", position=2, reason="no node has 2 free GPUs")
    new = waiting(name="new", position=0, reason="waits for the scheduler")
    logged_in.on("GET", "/sessions", [new, second, waiting(reason=REASON)])
    code, out, _ = run("queue")
    assert code == 0
    assert out == (
        "#  NAME    PROJECT  USER   GPUs  PRIORITY  AGE  WAITS FOR\n"
        f"1  third   team-a   alice  0.5   50        2m   {REASON}\n"
        "2  second  team-a   alice  0.5   50        2m   no node has 2 free GPUs\n"
        "-  new     team-a   alice  0.5   50        2m   waits for the scheduler\n"
    )
    assert logged_in.last.query == {"state": "PENDING", "all": "false", "limit": "1000"}
