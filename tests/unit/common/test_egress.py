"""What sessions may reach, as it is written."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from common.egress import Destination, parse


@pytest.mark.parametrize(
    ("text", "network", "ports", "protocol"),
    [
        ("10.1.2.3:443", "10.1.2.3/32", (443, 443), "tcp"),
        ("10.1.2.3:443/tcp", "10.1.2.3/32", (443, 443), "tcp"),
        ("10.1.2.3:53/udp", "10.1.2.3/32", (53, 53), "udp"),
        ("10.1.0.0/16:8000-8100", "10.1.0.0/16", (8000, 8100), "tcp"),
        ("10.1.0.0/16", "10.1.0.0/16", None, "tcp"),
        ("0.0.0.0/0", "0.0.0.0/0", None, "tcp"),
    ],
)
def test_an_address_or_a_range_with_ports_or_without(
    text: str, network: str, ports: tuple[int, int] | None, protocol: str
) -> None:
    assert parse(text) == Destination(IPv4Network(network), ports, protocol)


def test_one_address_is_no_range() -> None:
    assert parse("10.1.2.3:443").is_address
    assert parse("10.1.2.3/32:443").is_address
    assert not parse("10.1.2.2/31:443").is_address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no destination"),
        ("reservoir:443", "no destination"),
        ("10.1.2.3:443/sctp", "no destination"),
        ("10.1.2.3:443 accept", "no destination"),
        ("10.1.2.3:443\n", "no destination"),
        ("2001:db8::1", "no destination"),
        ("10.1.2.3/16", "host bits"),
        ("10.1.2", "no address"),
        ("10.1.2.3:0", "from 1 to 65535"),
        ("10.1.2.3:70000", "from 1 to 65535"),
        ("10.1.2.3:90-80", "rise"),
        ("169.254.169.254:80", "no place of its own"),
        ("127.0.0.1:80", "no place of its own"),
        ("224.0.0.0/4", "no place of its own"),
    ],
)
def test_what_is_none_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)
