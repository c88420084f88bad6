"""DNS servers of containers that meet others."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.agent.docker import resolvers
from appliance.agent.docker.resolvers import NOBODY

STUB = "search site\nnameserver 127.0.0.53\noptions edns0\n"


@pytest.mark.parametrize(
    ("texts", "servers"),
    [
        (["nameserver 10.0.0.53\nnameserver 127.0.0.1\n", ""], ["10.0.0.53"]),
        ([STUB, "nameserver 10.0.0.53\nnameserver fd00::53\n"], ["10.0.0.53", "fd00::53"]),
        ([STUB, STUB], [NOBODY]),
        (["nameserver ::1\nnameserver 0.0.0.0\nnameserver\nnameserver here\n", ""], [NOBODY]),
    ],
    ids=["beside the node's own", "behind systemd's", "none", "nothing that is one"],
)
def test_servers_on_the_node_itself_are_left_out(tmp_path: Path, texts: list[str], servers: list[str]) -> None:
    files = [tmp_path / str(number) for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    assert resolvers.of_node(files) == servers


def test_a_node_without_any_has_none(tmp_path: Path) -> None:
    assert resolvers.of_node([tmp_path / "missing"]) == [NOBODY]
