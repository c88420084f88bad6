"""Ways between GPUs as `penstock get` shows them: what NCCL told of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from appliance.client.views import Container, Nccl

_USED = {True: "used", False: "not used", None: "not known"}


def fields(containers: Sequence[Container]) -> Iterator[tuple[str, str]]:
    """Yield a line for each way of which a container's log tells something, with NCCL's own words."""
    for container in containers:
        of = f"{container['rank']}: " if len(containers) > 1 else ""
        for name, said in _ways(container["nccl"]):
            yield name, of + said


def _ways(nccl: Nccl | None) -> Iterator[tuple[str, str]]:
    if nccl is None:
        return
    if nccl["p2p_line"]:
        yield "P2P", _said(nccl["p2p"], nccl["p2p_line"])
    if nccl["ib_line"]:
        yield "InfiniBand or RoCE", _said(nccl["ib"], nccl["ib_line"])
    if nccl["gdrdma_line"]:
        yield "GPUDirect RDMA", _said(nccl["gdrdma"], nccl["gdrdma_line"])


def _said(used: bool | None, line: str) -> str:
    return f"{_USED[used]}: {line}"
