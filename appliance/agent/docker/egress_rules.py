"""The packet rules that hold sessions to what they may reach, as one table of nftables. Pure.

All traffic of sessions enters this node by the bridge that every container is on, or by the bridge of a gang. What a
session begins is judged at that entrance, before anything routes or rewrites it, so the same rules keep it from other
nodes, from this one, and, as the bridge hands its frames to them too, from its neighbours; by IPv4, IPv6 and link-local
addresses alike. Answers to what others begin, such as the edge by the agent, go out.

What accounts of this node begin is judged where it leaves the node for a container.

No table of others takes back what this one refuses, and no flush of theirs empties it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address

from appliance.agent.docker.gang_network import BRIDGE_PREFIX, VXLAN_PORT
from common.egress import Destination

TABLE = "penstock"
LOOK = ("nft", "--stateless", "--terse", "list", "table", "inet", TABLE)
"""Shows the table as the kernel has it, without what it counts by the way."""
MOST_CONNECTIONS = 128
"""How many TCP connections one container may have begun and open at a time."""
INSTALL = ("nft", "--file", "-")
"""Takes the rules of `table`; all of them at once, or none."""
LINK_LOCAL = "169.254.0.0/16"


def table(bridge: str, opened: Iterable[Destination], nodes: Sequence[IPv4Address]) -> str:
    """Return the table in place of the one before. `bridge` is the one that all containers are on.

    What is `opened` by its address alone may be on one of the site's `nodes`; a range opens none of them.
    """
    single, ranges = _split(opened)
    closed = ", ".join([*map(str, sorted(set(nodes))), LINK_LOCAL])
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain prerouting {{
        type filter hook prerouting priority mangle; policy accept;
        iifname "{bridge}" jump sessions
    }}
    set connections {{
        type ipv4_addr
        size {1 << 16}
        flags dynamic
    }}
    chain sessions {{
        ct state established ct direction reply accept
        ct state related meta l4proto icmp accept
        # beyond this node all its sessions have one address: what is limited by that must not fall to one of them
        meta l4proto tcp ct state new add @connections {{ ip saddr ct count over {MOST_CONNECTIONS} }} jump refuse
        # a VXLAN believes whoever sends to it
        udp dport {VXLAN_PORT} counter drop
{_accepts(single)}
        # this node by any of its addresses, everybody at once, and nowhere
        fib daddr type != unicast jump refuse
        fib daddr oifname "{bridge}" jump refuse
        ip daddr {{ {closed} }} jump refuse
{_accepts(ranges)}
        jump refuse
    }}
    chain refuse {{
        meta l4proto tcp counter reject with tcp reset
        counter reject with icmpx admin-prohibited
    }}
    # apps of sessions ask nobody who comes, as the edge has: of this node root alone, as whom the agent runs, begins
    # anything with a container, and no job that people have here beside sessions
    chain output {{
        type filter hook output priority mangle; policy accept;
        oifname "{bridge}" meta skuid != 0 ct state new jump refuse
        oifname "{BRIDGE_PREFIX}*" meta skuid != 0 ct state new jump refuse
    }}
    # a gang's own bridge leads to its members alone: neither to this node nor out
    chain input {{
        type filter hook input priority mangle; policy accept;
        iifname "{BRIDGE_PREFIX}*" counter drop
    }}
    chain forward {{
        type filter hook forward priority mangle; policy accept;
        iifname "{BRIDGE_PREFIX}*" oifname != "{BRIDGE_PREFIX}*" counter drop
        iifname != "{BRIDGE_PREFIX}*" oifname "{BRIDGE_PREFIX}*" counter drop
    }}
}}
"""


def _split(opened: Iterable[Destination]) -> tuple[list[Destination], list[Destination]]:
    ordered = sorted(set(opened), key=str)
    return [each for each in ordered if each.is_address], [each for each in ordered if not each.is_address]


def _accepts(destinations: Iterable[Destination]) -> str:
    return "\n".join(f"        ip daddr {each.network}{_ports(each)} accept" for each in destinations)


def _ports(destination: Destination) -> str:
    if destination.ports is None:
        return ""
    first, last = destination.ports
    return f" {destination.protocol} dport {first}" + (f"-{last}" if last > first else "")
