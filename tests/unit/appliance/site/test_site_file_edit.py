"""Changes of a site file that leave all else as people wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from appliance.site.site_file_edit import with_address, with_gpus, with_node, without_node
from common.errors import InputError

ROOT = Path(__file__).parents[4]
EXAMPLE = (ROOT / "inventory" / "example" / "site.yml").read_text()
NEW: dict[str, Any] = {
    "name": "worker9",
    "address": "10.71.8.19",
    "roles": ["worker"],
    "agent_port": 6001,
    "gpus": {"count": 8, "model": "H100"},
}
SHORT = """\
name: lab
nodes:
- name: master1  # the first
  address: 10.0.0.1
  roles:
    - reservoir
    - master
# the row at the window
- {name: worker1, address: 10.0.0.2, roles: [worker], agent_port: 6001}

# behind all nodes
- name: worker2
  roles: [worker]
  address: &there '10.0.0.3'

# ports of the site
ports: {console: 8443}"""


def names(text: str) -> list[str]:
    return [node["name"] for node in yaml.safe_load(text)["nodes"]]


@pytest.mark.parametrize("text", [EXAMPLE, SHORT, "nodes:\n    - name: m1\n      roles: [worker]", SHORT + "\n"])
def test_a_node_more_stands_behind_the_others_and_every_other_line_stays(text: str) -> None:
    changed = with_node(text, "site.yml", NEW)
    before, after = yaml.safe_load(text), yaml.safe_load(changed)
    assert after == before | {"nodes": [*before["nodes"], NEW]}
    lines = iter(changed.splitlines())
    assert all(line in lines for line in text.splitlines()), "in the same order"
    assert "roles: [worker]" in changed
    assert without_node(changed, "site.yml", "worker9").rstrip("\n") == text.rstrip("\n")


def test_a_node_less_takes_its_own_lines_alone() -> None:
    assert names(without_node(SHORT, "site.yml", "worker1")) == ["master1", "worker2"]
    gone = {
        "worker1": ["- {name: worker1, address: 10.0.0.2, roles: [worker], agent_port: 6001}"],
        "worker2": ["- name: worker2", "  roles: [worker]", "  address: &there '10.0.0.3'"],
    }
    for name, lines in gone.items():
        left = without_node(SHORT, "site.yml", name).splitlines()
        assert left == [line for line in SHORT.splitlines() if line not in lines]


def test_another_address_changes_nothing_else() -> None:
    assert with_address(SHORT, "site.yml", "worker1", "10.0.0.77") == SHORT.replace("10.0.0.2", "10.0.0.77")
    assert with_address(EXAMPLE, "site.yml", "worker2", "10.0.0.77") == EXAMPLE.replace("10.71.8.12", "10.0.0.77")


def test_gpus_stand_at_their_nodes_and_every_other_line_stays() -> None:
    expected: dict[str, dict[str, Any]] = {
        "worker1": {"count": 8, "model": "NVIDIA H100 80GB HBM3"},
        "worker2": {"count": 4},
    }
    changed = with_gpus(SHORT, "site.yml", expected)
    assert changed == SHORT.replace(
        "agent_port: 6001}", "agent_port: 6001, gpus: {count: 8, model: NVIDIA H100 80GB HBM3}}"
    ).replace("&there '10.0.0.3'\n", "&there '10.0.0.3'\n  gpus: {count: 4}\n")
    odd: dict[str, dict[str, Any]] = {"master1": {"count": 1, "model": "Tesla: {T4} #1"}}
    assert yaml.safe_load(with_gpus(SHORT, "site.yml", odd))["nodes"][0]["gpus"] == odd["master1"]


def test_gpus_of_a_node_that_is_taken_over_from_another_one_are_left_to_people() -> None:
    text = "nodes:\n- &first\n  name: m1\n  roles: [worker]\n- {<<: *first, name: m2}\n"
    with pytest.raises(InputError, match=r"not valid YAML|cannot be changed"):
        with_gpus(text, "site.yml", {"m1": {"count": 1}})


def test_a_name_that_no_node_has_is_told_with_those_that_there_are() -> None:
    missing = r"site.yml: the site has no node 'w3'. Hint: name one of master1"
    with pytest.raises(InputError, match=missing):
        without_node(SHORT, "site.yml", "w3")
    with pytest.raises(InputError, match=missing):
        with_address(SHORT, "site.yml", "w3", "10.0.0.9")


def test_nodes_in_brackets_are_left_to_people() -> None:
    text = "name: lab\nnodes: [{name: m1, roles: [worker]}, {name: m2, roles: [worker]}]\n"
    by_hand = r"stand in brackets.*by hand"
    with pytest.raises(InputError, match=by_hand):
        with_node(text, "site.yml", NEW)
    with pytest.raises(InputError, match=by_hand):
        without_node(text, "site.yml", "m1")


def test_what_another_node_takes_over_from_it_is_not_torn_away() -> None:
    text = "nodes:\n- &first\n  name: m1\n  roles: [worker]\n- {<<: *first, name: m2}\n"
    with pytest.raises(InputError, match=r"not valid YAML|cannot be changed"):
        without_node(text, "site.yml", "m1")


@given(
    st.lists(st.sampled_from(["block", "flow", "comment", "deep", "folded"]), min_size=1, max_size=6),
    st.integers(0, 4),
    st.data(),
)
def test_files_of_many_forms_lose_and_get_back_a_node(forms: list[str], indent: int, data: st.DataObject) -> None:
    shapes = {
        "block": "- name: n{}\n  address: 10.0.0.{}\n\n",
        "flow": "- {{name: n{}, address: 10.0.0.{}}}\n",
        "comment": "# above\n- name: n{}  # beside\n  # between\n  address: 10.0.0.{}\n  # below\n",
        "deep": "-\n  name: n{}\n  address: 10.0.0.{}\n  gpus:\n    count: 4\n",
        "folded": "- name: n{}\n  address: 10.0.0.{}\n  note: |\n    one\n    two\n",
    }
    block = "".join(shapes[form].format(number, number) for number, form in enumerate(forms))
    listed = "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in block.split("\n")[:-1])
    text = f"name: lab\nnodes:\n{listed}last: 1\n"
    before = yaml.safe_load(text)
    grown = with_node(text, "site.yml", NEW)
    assert yaml.safe_load(grown) == before | {"nodes": [*before["nodes"], NEW]}
    assert without_node(grown, "site.yml", "worker9") == text
    expected = {f"n{number}": {"count": number} for number, form in enumerate(forms) if form != "deep"}
    having = [node | ({"gpus": expected[node["name"]]} if node["name"] in expected else {}) for node in before["nodes"]]
    assert yaml.safe_load(with_gpus(text, "site.yml", expected)) == before | {"nodes": having}
    out = data.draw(st.sampled_from(range(len(forms))))
    smaller = without_node(grown, "site.yml", f"n{out}")
    assert names(smaller) == [f"n{number}" for number in range(len(forms)) if number != out] + ["worker9"]
    assert set(smaller.splitlines()) <= set(grown.splitlines())
