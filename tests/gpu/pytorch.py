"""PyTorch at a memory limit: allocates until it raises, and tells how much that was. PYTORCH_ALLOC_CONF says how."""

from __future__ import annotations

import importlib
import json
import time
from typing import Any

BLOCK = 32 << 20
SEEN = 0.3
"""Seconds for which a full GPU stays so, that those see it who watch it."""


def main() -> None:
    """Fill the GPU and print one JSON line."""
    torch: Any = importlib.import_module("torch")
    kept = []
    try:
        while True:
            kept.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    # its name in all versions; newer ones have it in `torch` as well
    except torch.cuda.OutOfMemoryError:
        time.sleep(SEEN)
        print(json.dumps({"held": len(kept) * BLOCK, "code": 2, "free": torch.cuda.mem_get_info()[0]}))


if __name__ == "__main__":
    main()
