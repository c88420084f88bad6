"""The bench on traces: what it reads, draws and counts."""

from __future__ import annotations

from pathlib import Path

from tests.bench.openb import arrivals, read_nodes, read_pods, replay

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
