"""Which nodes need which ports of which others, and what is said of those that do not answer."""

from __future__ import annotations

from typing import Any

from appliance.agent import settings as agent_settings
from appliance.site import ways
from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse

SITE = """\
name: north
nodes:
  - {{name: res, address: 10.0.0.1, roles: [reservoir]}}
  - {{name: master, address: 10.0.0.2, roles: [master]}}
  - {{name: store, address: 10.0.0.3, roles: [storage]}}
  - {{name: one, address: 10.0.0.4, roles: [worker], agent_port: 6001}}
  - {{name: two, address: 10.0.0.5, roles: [worker], agent_port: 6002}}
storage: [{{kind: nfs, name: data, path: /srv/data, clients: [worker]}}]
{more}
"""


def site(more: str = "") -> Site:
    return load(parse(SITE.format(more=more), "site.yml"))


def needed(source: str, described: Site, *, needed: bool = True) -> set[str]:
    """The ways from a node: protocol, name of the other node, and port."""
    found = [way for way in ways.between(described) if way.source.name == source and way.needed == needed]
    return {f"{way.protocol}/{way.target.name}:{way.port}" for way in found}


def test_a_worker_needs_packages_images_the_api_and_storage() -> None:
    assert needed("one", site()) == {"tcp/res:8443", "tcp/res:5000", "tcp/master:56790", "tcp/store:2049"}


def test_the_master_needs_packages_and_all_agents() -> None:
    assert needed("master", site()) == {"tcp/res:8443", "tcp/one:6001", "tcp/two:6002"}


def test_a_node_needs_nothing_of_itself() -> None:
    assert needed("res", site()) == set()
    assert all(way.source is not way.target for way in ways.between(site()))


def test_what_some_sessions_and_people_need_is_no_more_than_told() -> None:
    people = {"tcp/master:443", "tcp/master:56789", "tcp/master:9443", "udp/master:123"}
    assert needed("one", site(), needed=False) == people | {"udp/two:4789"}
    assert needed("two", site(), needed=False) == people | {"udp/one:4789"}
    assert needed("master", site(), needed=False) == {"tcp/one:57000", "tcp/two:57000"}


def test_what_the_site_file_says_counts() -> None:
    more = "logs: {gather: true}\ntime: {servers: [10.9.9.9]}\nports: {reservoir: 8444}\n"
    more += "node_agent: {port_range: 40000-40999}"
    said = site(more)
    assert needed("store", said) == {"tcp/res:8444", "tcp/master:56790"}
    assert "udp/master:123" not in needed("store", said, needed=False)
    assert "tcp/one:40000" in needed("master", said, needed=False)


def test_controllers_and_nodes_of_slurm_need_each_other() -> None:
    places = "gpus: {count: 4}, slurm: {cores: 8, memory_mib: 65536}"
    text = SITE.format(more="engine: slurm")
    text = text.replace("agent_port: 6001", f"agent_port: 6001, {places}").replace("6002", f"6002, {places}")
    said = load(parse(text, "site.yml"))
    assert "tcp/master:6817" in needed("one", said)
    assert {"tcp/one:6818", "tcp/two:6818"} <= needed("master", said)


def test_who_is_tried_listens() -> None:
    asked = ways.questions(site())
    assert {(port["protocol"], port["port"]) for port in asked["one"]["node_listens"]} == {
        ("tcp", 6001),
        ("tcp", 57000),
        ("udp", 4789),
    }
    assert {port["port"] for port in asked["res"]["node_listens"]} == {8443, 5000}
    assert {"protocol": "tcp", "port": 6001, "address": "10.0.0.4", "key": "tcp/10.0.0.4:6001"} in asked["master"][
        "node_tries"
    ]


def test_a_node_that_may_run_sessions_leaves_their_port_of_udp_alone() -> None:
    of_agents = [port for port in ways.questions(site())["one"]["node_listens"] if "unless" in port]
    assert [(port["protocol"], port["port"], port["unless"]) for port in of_agents] == [
        ("udp", 4789, agent_settings.FILE)
    ]


def test_who_listens_knows_who_calls() -> None:
    listens = {port["port"]: port["callers"] for port in ways.questions(site())["one"]["node_listens"]}
    assert listens[6001] == ["10.0.0.2"], "the master"


def published(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What all nodes say where all is well, but for `changes`."""
    asked = ways.questions(site())
    said = {
        name: {
            ways.LISTENS: [f"{port['protocol']}/{port['port']}" for port in of_node["node_listens"]],
            ways.TRIED: {way["key"]: "" for way in of_node["node_tries"]},
        }
        for name, of_node in asked.items()
    }
    known = {name: of_node | {ways.LISTENED: of_node[ways.LISTENS]} for name, of_node in said.items()}
    return {name: of_node | changes.get(name, {}) for name, of_node in known.items()}


def judged(**changes: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """State and evidence of what is not well, by the names of nodes."""
    found = ways.judge(ways.between(site()), published(**changes))
    wrong = {name: [(str(each.state), each.evidence) for each in checks if each.hint] for name, checks in found.items()}
    return {name: checks for name, checks in wrong.items() if checks}


def vain(name: str, key: str) -> dict[str, Any]:
    tried: dict[str, str] = published()[name][ways.TRIED]
    assert key in tried
    return {ways.TRIED: tried | {key: "Connection refused"}}


def test_nodes_that_reach_each_other_are_well() -> None:
    found = ways.judge(ways.between(site()), published())
    assert {str(check.state) for checks in found.values() for check in checks} == {"ok"}
    assert set(found) == {"res", "master", "store", "one", "two"}


def test_a_worker_that_does_not_reach_packages_is_unfit() -> None:
    assert judged(one=vain("one", "tcp/10.0.0.1:8443")) == {
        "one": [("fail", "one does not reach TCP port 8443 of res (packages): Connection refused")]
    }


def test_an_agent_that_the_master_does_not_reach_makes_its_worker_unfit_and_not_the_master() -> None:
    found = judged(master=vain("master", "tcp/10.0.0.4:6001"))
    assert list(found) == ["one"]
    assert found["one"][0][0] == "fail"


def test_sessions_on_several_nodes_are_no_reason_to_keep_a_worker_out() -> None:
    assert [state for state, _ in judged(two=vain("two", "udp/10.0.0.4:4789"))["two"]] == ["warn"]


def test_a_port_that_nobody_could_listen_on_says_nothing() -> None:
    assert judged(one=vain("one", "tcp/10.0.0.1:8443"), res={ways.LISTENS: []}) == {}


def test_a_port_that_nobody_listens_on_any_more_is_unknown_and_keeps_nobody_out() -> None:
    found = judged(one=vain("one", "tcp/10.0.0.1:8443"), res={ways.LISTENED: []})
    reason = (
        "one does not reach TCP port 8443 of res (packages): Connection refused, but nobody listened there any more"
    )
    assert found == {"one": [("warn", reason)]}


def test_a_node_that_could_not_listen_is_told() -> None:
    found = judged(res={ways.LISTENS: [], ways.UNHEARD: "/run/penstock-preflight-5b3c: File exists"})
    reason = "others could not try the ports of res: /run/penstock-preflight-5b3c: File exists"
    assert found == {"res": [("warn", reason)]}
