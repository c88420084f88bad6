"""The name below which apps have their own: what a site may say, and whether it leads to the master."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from appliance.site import apps_names, inventory, pki, preflight
from appliance.site.model import Site
from common.checks import CheckState
from reservoir.contents.bundle import Bundle

NODE = {"name": "all", "address": "10.0.0.2", "roles": ["reservoir", "master"]}


def site(**edge: Any) -> Site:
    said = {"names": ["gpu.example"], "apps_name": "apps.gpu.example"} | edge
    return Site.model_validate({"name": "s", "nodes": [NODE], "edge": said})


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"apps_name": "*.gpu.example"}, "apps_name"),
        ({"apps_name": "Apps.gpu.example"}, "apps_name"),
        ({"apps_name": "apps"}, "apps_name"),
        ({"apps_name": "10.0.0.2"}, "is an address; write a DNS name"),
        ({"apps_name": f"{'a' * 64}.example"}, "more than 63 characters"),
        ({"apps_name": ".".join(["a" * 60] * 4)}, "apps_name"),
        ({"names": []}, "needs `names`"),
        ({"apps_name": "gpu.example"}, "gpu.example is `apps_name` gpu.example or below it"),
        ({"names": ["a.example", "console.apps.gpu.example"]}, "console.apps.gpu.example is `apps_name`"),
    ],
)
def test_a_name_by_which_apps_are_not_kept_apart_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("*", ".")):
        site(**said)


def test_names_beside_and_below_the_console_s_are_taken() -> None:
    for name in ("apps.gpu.example", "apps.example", "xgpu.example"):
        assert site(apps_name=name).edge.apps_wildcard == f"*.{name}"


def test_the_master_s_certificate_and_its_api_know_the_name() -> None:
    named, without = site(), site(apps_name=None)
    [certificate] = pki.certificate_names(named)
    assert "*.apps.gpu.example" in certificate.names
    [certificate] = pki.certificate_names(without)
    assert not [name for name in certificate.names if "*" in name]
    told = [inventory.build(each, version="1")["all"]["vars"]["site_control_api"] for each in (named, without)]
    assert [each.get("apps_name") for each in told] == ["apps.gpu.example", None]
    assert (named.apps_shown, without.apps_shown) == ("https://*.apps.gpu.example:9443", "https://gpu.example:9443")
    [node] = inventory.build(named, version="1")["all"]["vars"]["site_nodes"]
    assert not [alias for alias in node["aliases"] if "apps" in alias], "no file of hosts knows wildcards"


def test_a_name_that_leads_elsewhere_is_a_fault_and_one_that_is_not_found_a_warning() -> None:
    asked: list[str] = []

    def told(*addresses: str) -> apps_names.Resolver:
        return lambda name: asked.append(name) or addresses  # type: ignore[func-returns-value]

    def nothing(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    found = {
        "right": apps_names.checks(site(), told("10.0.0.2")),
        "wrong": apps_names.checks(site(), told("10.0.0.3")),
        "both": apps_names.checks(site(), told("10.0.0.2", "10.0.0.3")),
        "none": apps_names.checks(site(), nothing),
    }
    assert {name: [check.state for check in checks] for name, checks in found.items()} == {
        "right": [CheckState.OK],
        "wrong": [CheckState.FAIL],
        "both": [CheckState.FAIL],
        "none": [CheckState.WARN],
    }
    [wrong] = found["wrong"]
    assert "*.apps.gpu.example is 10.0.0.3" in wrong.evidence
    assert "say 10.0.0.2 for *.apps.gpu.example" in wrong.hint
    assert len(set(asked)) == 3, "no name that somebody has made an entry for"
    assert all(name.endswith(".apps.gpu.example") for name in asked)


def leading(*addresses: str) -> apps_names.Resolver:
    return lambda _: addresses


def test_before_a_deploy_a_name_that_leads_elsewhere_is_a_warning_of_the_master() -> None:
    """What is installed works by addresses, and name servers may be told of it later."""
    none = Bundle.model_construct(targets=[], artifacts=[])
    published: dict[str, dict[str, Any]] = {"all": {preflight.FINDINGS: []}}
    for address, state in (("10.0.0.2", CheckState.OK), ("10.0.0.3", CheckState.WARN)):
        table = preflight.table(site(), none, published, leading(address))
        assert [check.state for check in table["all"] if check.id == apps_names.IDENTITY] == [state]
        assert preflight.unfit(table) == {}
    assert preflight.table(site(apps_name=None), none, published, lambda _: pytest.fail("asked")) == {"all": []}


def test_where_apps_have_no_names_nothing_is_asked() -> None:
    assert apps_names.checks(site(apps_name=None), lambda _: pytest.fail("asked")) == []


def test_the_name_server_of_this_machine_is_asked() -> None:
    assert "127.0.0.1" in apps_names.addresses_of("localhost")
