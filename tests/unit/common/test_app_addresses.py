"""Addresses of apps: at one origin for all, or each by a name of its own."""

from __future__ import annotations

from uuid import UUID

import pytest

from common.app_addresses import MAX_LABEL, AppAddresses, AppName

ID = UUID("0123456789abcdef0123456789abcdef")
LABEL = f"8888-{ID.hex}"
SHARED = AppAddresses("https://site.example:9443")
OWN = AppAddresses("https://site.example:9443", "apps.example")


def test_where_all_share_one_origin_each_has_a_path() -> None:
    assert SHARED.address(ID, 8888, "web-8888", None) == "https://site.example:9443/web-8888/"
    assert SHARED.address(ID, 8888, "web-8888", "team/nb") == "https://site.example:9443/team/nb/"
    assert SHARED.policy == "https://site.example:9443"
    assert SHARED.named(f"{LABEL}.apps.example:9443") is None


def test_with_a_name_each_is_at_its_own_root() -> None:
    assert OWN.address(ID, 8888, "web-8888", None) == f"https://{LABEL}.apps.example:9443/"
    assert OWN.address(ID, 8888, "web-8888", "team/nb") == f"https://{LABEL}.apps.example:9443/team/nb/"
    assert OWN.policy == "https://*.apps.example:9443"
    assert AppAddresses("https://site.example", "apps.example").origin("a") == "https://a.apps.example"


def test_without_an_edge_there_are_no_addresses() -> None:
    assert AppAddresses().address(ID, 8888, "web-8888", None) is None
    assert AppAddresses().policy == ""


def test_every_label_fits_into_a_name() -> None:
    assert len(AppName(ID, 65535).label) <= MAX_LABEL


@pytest.mark.parametrize(
    "host", [f"{LABEL}.apps.example:9443", f"{LABEL}.APPS.example", f"{LABEL.upper()}.apps.example:1"]
)
def test_a_host_says_which_app_it_is_for(host: str) -> None:
    assert OWN.named(host) == AppName(ID, 8888)


@pytest.mark.parametrize(
    "host",
    [
        *("", "apps.example", "www.apps.example", "site.example:9443", f"{LABEL}.example", f"{LABEL}apps.example"),
        *(f"{LABEL}.apps.example.", f"{LABEL}.apps.example:", f"{LABEL}.apps.example:9443:9443"),
        *(f"a.{LABEL}.apps.example", f"0{LABEL}.apps.example", f"{LABEL}0.apps.example", f"{LABEL}\n.apps.example"),
        *(f"٨888-{ID.hex}.apps.example", f"{LABEL[:-1]}.apps.example", f"{ID.hex}.apps.example"),
    ],
)
def test_no_other_host_is_an_app_s(host: str) -> None:
    assert OWN.named(host) is None


def test_the_origin_has_to_be_the_app_s_to_the_letter() -> None:
    assert OWN.is_own_host(f"{LABEL}.apps.example:9443")
    for host in (f"{LABEL}.apps.example", f"{LABEL}.apps.example:443", f"{LABEL.upper()}.apps.example:9443"):
        assert not OWN.is_own_host(host), host
