"""Networks between the containers of a session: their numbers, addresses and range."""

from __future__ import annotations

from itertools import pairwise

import pytest

from api.resources.sessions import networks
from api.settings import load
from common.errors import InputError
from common.gang_networks import PRIVATE


def test_every_container_has_an_address_of_its_networks() -> None:
    for private in PRIVATE:
        number = int(private.network_address) >> 5
        assert networks.subnet(number).subnet_of(private)
        assert len({networks.address(number, rank) for rank in range(20)}) == 20
        assert networks.address(number, 19) < networks.subnet(number).broadcast_address


def test_no_two_private_networks_have_one_vxlan() -> None:
    edges = [
        number
        for private in PRIVATE
        for number in (int(private.network_address) >> 5, int(private.broadcast_address) >> 5)
    ]
    parts = sorted((networks.vxlan(edges[at]), networks.vxlan(edges[at + 1])) for at in range(0, len(edges), 2))
    assert all(last < first for (_, last), (first, _) in pairwise(parts))


@pytest.mark.parametrize(("range_", "reason"), [("8.8.8.0/24", "is not private"), ("10.0.0.0/28", "is too small")])
def test_the_range_is_private_and_large_enough(range_: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        load({"PENSTOCK_API_GANG_NETWORKS": range_})
    assert refused.value.problems[0].where == "PENSTOCK_API_GANG_NETWORKS"
