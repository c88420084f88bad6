"""The packet rules that hold sessions to what they may reach, as text; what they do is tested on a real engine."""

from __future__ import annotations

from ipaddress import IPv4Address

from appliance.agent.docker import egress_rules
from common.egress import parse

NODES = [IPv4Address("10.0.0.2"), IPv4Address("10.0.0.1")]


def sessions(*opened: str) -> list[str]:
    """Return the rules of what a session begins, in their order."""
    text = egress_rules.table("docker0", map(parse, opened), NODES)
    chain = text.partition("chain sessions {")[2].partition("    }\n    chain refuse")[0]
    return [line.strip() for line in chain.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_addresses_come_before_what_is_closed_and_ranges_behind() -> None:
    rules = sessions("0.0.0.0/0", "10.0.0.1:443", "10.9.0.0/16:8000-8100", "10.0.0.9:53/udp")
    assert rules[2:] == [
        "meta l4proto tcp ct state new add @connections { ip saddr ct count over 128 } jump refuse",
        "udp dport 4789 counter drop",
        "ip daddr 10.0.0.1/32 tcp dport 443 accept",
        "ip daddr 10.0.0.9/32 udp dport 53 accept",
        "fib daddr type != unicast jump refuse",
        'fib daddr oifname "docker0" jump refuse',
        "ip daddr { 10.0.0.1, 10.0.0.2, 169.254.0.0/16 } jump refuse",
        "ip daddr 0.0.0.0/0 accept",
        "ip daddr 10.9.0.0/16 tcp dport 8000-8100 accept",
        "jump refuse",
    ]


def test_without_anything_opened_only_answers_go_out() -> None:
    accepted = [rule for rule in sessions() if rule.endswith("accept")]
    assert accepted == ["ct state established ct direction reply accept", "ct state related meta l4proto icmp accept"]
    assert sessions()[-1] == "jump refuse"


def test_the_same_is_written_whatever_the_order() -> None:
    opened = [parse("10.0.0.1:443"), parse("10.0.0.1:80")]
    assert egress_rules.table("docker0", opened, NODES) == egress_rules.table("docker0", opened[::-1], NODES[::-1])
