"""PyTorch as a program of a tenant: `fill` allocates until it raises, `train SECONDS` computes steps of a training.

The latter says when it is warm, and then with each line on its input how many steps a second it gets for so long.
"""

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
WARM_S = 2.0
"""Seconds of training after which clocks have risen, and nothing is made for the first time."""


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


def train(torch: Any, seconds: float) -> None:
    """Train a small network, whose steps the processor makes late: what it costs to launch shows."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU()))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")

    def rate(duration: float) -> float:
        steps, begun = 0, time.monotonic()
        while time.monotonic() - begun < duration:
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            # as those do that log it
            loss.item()
            steps += 1
        return steps / (time.monotonic() - begun)

    rate(min(WARM_S, 4 * seconds))
    say({"ready": True})
    while sys.stdin.readline():
        say({"steps_s": rate(seconds)})


def say(found: object) -> None:
    """Print one line for who has started this program."""
    print(json.dumps(found), flush=True)


def main() -> None:
    """Do what the arguments say; the first of them is the process that must stay alive meanwhile."""
    parent, what, *rest = sys.argv[1:]
    leash.hold(int(parent))
    torch: Any = importlib.import_module("torch")
    if what == "fill":
        say(fill(torch))
    else:
        train(torch, float(rest[0]))


if __name__ == "__main__":
    main()
