"""The end of a site, as the controller goes about it; playbooks are played here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.site import playbook, uninstall
from appliance.site.playbook import Counts, Event, Outcome, Result
from appliance.site.site_file import load
from common.errors import InputError, PartialError
from common.yaml_document import parse

TEXT = """\
name: lab
nodes:
  - {name: m1, address: 10.0.0.1, roles: [reservoir, master], take_over: [web_server]}
  - {name: w1, address: 10.0.0.2, roles: [worker], agent_port: 6001}
  - {name: w2, address: 10.0.0.3, roles: [worker], agent_port: 6001}
"""
SITE = load(parse(TEXT, "site.yml"))


class Played:
    """How playbooks were run; nodes in `silent` do not answer."""

    def __init__(self) -> None:
        self.steps: list[tuple[dict[str, Any], list[str], bool]] = []
        self.silent: set[str] = set()

    def run(self, name: str, hosts: dict[str, Any], **options: Any) -> Result:
        assert name == "uninstall"
        assert not options["together"], "one node that fails stops no other"
        end = hosts["all"]["vars"]["site_end"]
        self.steps.append((end, list(options["limit"]), options.get("check", False)))
        reached = [node for node in options["limit"] if node not in self.silent]
        result = Result(name, log=Path("log"), code=4 if self.silent & set(options["limit"]) else 0)
        result.published = {node: {uninstall.DONE: [f"{end['step']} {node}"]} for node in reached}
        result.nodes = {node: Counts(unreachable=int(node in self.silent)) for node in options["limit"]}
        result.failures = [
            Event("End", node, "Do it", Outcome.UNREACHABLE, "no route to host") for node in sorted(self.silent)
        ]
        return result


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(playbook, "run", played.run)
    monkeypatch.setattr(uninstall, "require_controller", lambda _: None)
    return played


class Controller:
    """What a controller has, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.data, self.state, self.opt = folder / "data", folder / "data" / "site", folder / "opt"
        self.command = folder / "penstock"
        for each in (self.state, self.opt / "site"):
            each.mkdir(parents=True)
        self.command.symlink_to(self.opt / "site")

    def end(self, **options: Any) -> uninstall.Told:
        installed = (self.command, self.opt)
        return uninstall.uninstall(
            SITE, lambda _: None, state=self.state, installed=installed, data=self.data, **options
        )

    @property
    def there(self) -> list[bool]:
        return [self.command.is_symlink(), self.opt.exists(), self.state.exists()]


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def test_a_look_changes_nothing(played: Played, controller: Controller) -> None:
    told = uninstall.foreseen(SITE, lambda _: None, state=controller.state)
    assert told["w1"] == ["stop w1", "remove w1"]
    assert [check for _, _, check in played.steps] == [True, True]
    assert controller.there == [True, True, True]


def test_all_nodes_stop_before_one_is_cleaned_and_the_controller_is_the_last(
    played: Played, controller: Controller
) -> None:
    told = controller.end()
    assert played.steps == [
        ({"step": "stop", "purge": False}, ["m1", "w1", "w2"], False),
        ({"step": "remove", "purge": False}, ["m1", "w1", "w2"], False),
    ]
    assert controller.there == [False, False, True]
    assert told["m1"] == ["stop m1", "remove m1", f"remove {controller.command}", f"remove {controller.opt}"]


def test_a_purge_takes_the_data_of_the_controller_too(played: Played, controller: Controller) -> None:
    controller.end(purge=True)
    assert [end["purge"] for end, _, _ in played.steps] == [True, True]
    assert controller.there == [False, False, False]


def test_the_controller_stays_while_a_node_does_not_answer(played: Played, controller: Controller) -> None:
    played.silent = {"w2"}
    with pytest.raises(PartialError, match=r"w2: End: Do it: no route(.|\n)*m1: it stays the controller.*--leave w2"):
        controller.end(purge=True)
    assert [end["step"] for end, _, _ in played.steps] == ["stop"], "none is cleaned"
    assert controller.there == [True, True, True]
    controller.end(left=["w2"])
    assert played.steps[-1][1] == ["m1", "w1"]
    assert controller.there == [False, False, True]


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    ("left", "reason"), [("w7", "the site has no node w7.*m1, w1, w2"), ("m1", "m1 is the controller")]
)
def test_nodes_that_are_left_are_of_the_site_and_not_its_controller(
    controller: Controller, left: str, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        controller.end(left=[left])
    assert controller.there == [True, True, True]
