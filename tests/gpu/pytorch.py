"""PyTorch at a memory limit: allocates until it raises, and tells how much that was. PYTORCH_ALLOC_CONF says how."""

from __future__ import annotations

import importlib
import json
from typing import Any

BLOCK = 32 << 20


def main() -> None:
    """Fill the GPU and print one JSON line."""
    torch: Any = importlib.import_module("torch")
    kept = []
    try:
        while True:
            kept.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(json.dumps({"held": len(kept) * BLOCK, "code": 2, "free": torch.cuda.mem_get_info()[0]}))


if __name__ == "__main__":
    main()
