"""The bench on traces: what it reads, draws and counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench import openb
from tests.bench.openb import FGD, arrivals, judged, read_nodes, read_pods, replay

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000,2,T4\nn1,4000,1000,1,P100\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p0,1000,10,1,500,\np1,1000,10,2,1000,T4|A10\np2,500,10,0,0,\np3,1000,10,1,1000,P100\n"
)


def test_a_trace_is_read_as_it_is_meant(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    nodes, pods = read_nodes(tmp_path / "nodes.csv"), read_pods(tmp_path / "pods.csv")
    assert [(len(node.gpus), node.cpu_milli, node.gpus[0].model) for node in nodes] == [
        (2, 8000, "T4"),
        (1, 4000, "P100"),
    ]
    assert [(pod.gpu_milli, pod.gpu_models) for pod in pods] == [
        (500, ()),
        (2000, ("A10", "T4")),
        (0, ()),
        (1000, ("P100",)),
    ]


def test_arrivals_ask_for_130_percent_and_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    nodes, pods = read_nodes(tmp_path / "nodes.csv"), read_pods(tmp_path / "pods.csv")
    drawn = list(arrivals(pods, 3000, 42))
    assert drawn == list(arrivals(pods, 3000, 42))
    assert sum(pod.gpu_milli for pod in drawn) >= 3900 > sum(pod.gpu_milli for pod in drawn[:-1])
    figures = replay(nodes, pods, 42)
    assert figures["arrived"] == len(drawn)
    assert figures["gpu_allocation_percent"] in {round(100 * held / 3000, 3) for held in range(0, 3001, 500)}
    assert figures["placements_per_second"] > 0
    assert 0 < figures["decision_p50_ms"] <= figures["decision_p99_ms"]


def test_a_mean_below_that_of_fgd_misses_the_aim_of_its_trace() -> None:
    aim = FGD["gpushare40"]
    assert judged("gpushare40", [aim - 0.5, aim + 0.5]) == {
        "trace": "gpushare40",
        "mean_gpu_allocation_percent": aim,
        "fgd": aim,
        "missed": False,
    }
    assert judged("gpushare40", [aim - 0.5, aim + 0.4])["missed"]
    assert not judged("of-others", [1.0])["missed"]


@pytest.mark.parametrize(
    ("arguments", "wanted", "lines"),
    [([], 1, 5), (["--seeds", "42", "43"], 1, 3), (["--seed", "42"], 0, 1)],
)
def test_the_exit_code_tells_of_a_missed_aim(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    wanted: int,
    lines: int,
) -> None:
    """A cluster that nothing of the trace fits on misses any aim; a single replay has none."""
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,100,100,2,T4\n")
    pods = tmp_path / "openb_pod_list_default.csv"
    pods.write_text(PODS)
    monkeypatch.setattr(sys, "argv", ["openb", "--nodes", str(tmp_path / "nodes.csv"), "--pods", str(pods), *arguments])
    with pytest.raises(SystemExit) as ended:
        openb.main()
    assert (ended.value.code, len(capsys.readouterr().out.splitlines())) == (wanted, lines)
