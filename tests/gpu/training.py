"""PyTorch as a program of a tenant: `fill` allocates until it raises, `train SECONDS` computes steps of a training."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from tests.gpu import leash

BLOCK = 32 << 20
SEEN = 0.3
"""Seconds for which a full GPU stays so, that those see it who watch it."""


def fill(torch: Any) -> dict[str, float]:
    """Fill the GPU."""
    kept = []
    try:
        while True:
            kept.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    # its name in all versions; newer ones have it in `torch` as well
    except torch.cuda.OutOfMemoryError:
        time.sleep(SEEN)
        return {"held": len(kept) * BLOCK, "code": 2, "free": torch.cuda.mem_get_info()[0]}


def train(torch: Any, seconds: float) -> dict[str, float]:
    """Train a small network; returns how many steps a second."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU()))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        # as those do that log it
        loss.item()

    for _ in range(20):
        step()
    steps, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        step()
        steps += 1
    return {"steps_s": steps / (time.monotonic() - begun)}


def main() -> None:
    """Do what the arguments say; the first of them is the process that must stay alive meanwhile."""
    parent, what, *rest = sys.argv[1:]
    leash.hold(int(parent))
    torch: Any = importlib.import_module("torch")
    found = fill(torch) if what == "fill" else train(torch, float(rest[0]))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
