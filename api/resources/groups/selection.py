"""Selection of a resource group's nodes by what they are. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Traits:
    """What a node can be selected by: where it is, and the model of each kind of GPU that it has."""

    name: str
    region: str = ""
    switch: str = ""
    gpu_models: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Selectors:
    """What a node must have, all of it; empty ones ask for nothing, and without any nothing is selected."""

    gpu_model: str = ""
    switch: str = ""
    region: str = ""

    def match(self, node: Traits) -> bool:
        """Return whether a node is selected; of its GPUs all must be of the model, so that none other is given away."""
        asked = (self.gpu_model, self.switch, self.region)
        if not any(asked):
            return False
        return (
            (not self.switch or self.switch == node.switch)
            and (not self.region or self.region == node.region)
            and (
                not self.gpu_model
                or (bool(node.gpu_models) and all(is_model(self.gpu_model, m) for m in node.gpu_models))
            )
        )


@lru_cache(maxsize=4096)
def is_model(wanted: str, model: str) -> bool:
    """Return whether a GPU is of a model: `v100` means `Tesla V100-SXM2-16GB`, but `a10` does not mean `NVIDIA A100`.

    The words of what is wanted must stand in the model's name, whole and one after the other; case does not count.
    """
    words, named = _words(wanted), _words(model)
    return any(named[at : at + len(words)] == words for at in range(len(named) - len(words) + 1))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
