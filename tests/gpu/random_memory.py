"""Physical memory in random programs: handles that are mapped, exported and imported, and sparse arrays of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

MIB = 1 << 20
PAGE = 2 * MIB
NAMES = 60
"""Objects of a kind at the same time; the client has room for a few more."""
FIRST = 2
"""Names below it are those of the contexts that stay, one a GPU."""


@dataclass
class _Handle:
    size: int
    held: bool = True
    mapped: bool = False
    imported: bool = False


class PhysicalMemory:
    """The part of a program that takes memory by handles; `_settle` counts a step once the limit has not refused it."""

    def __init__(self, seed: int, gpus: Sequence[int]) -> None:
        """Choose at random on these GPUs."""
        self._random = random.Random(seed)
        self._gpus = gpus
        self._current = 0
        self._handles: dict[int, _Handle] = {}
        self._files: dict[int, int] = {}
        self._sparse: dict[int, set[int]] = {}
        self._settle: Callable[[], None] = lambda: None

    @property
    def _arrays(self) -> Collection[int]:
        """Names of all arrays."""
        return self._sparse.keys()

    def _new(self, taken: Collection[int]) -> int | None:
        free = [name for name in range(FIRST, NAMES) if name not in taken]
        return self._random.choice(free) if free else None

    def _any(self, names: object) -> int | None:
        choices = sorted(names)  # type: ignore[call-overload]
        return int(self._random.choice(choices)) if choices else None

    def _create(self) -> list[str]:
        name = self._new(set(self._handles))
        if name is None:
            return []
        size = PAGE * (1 + self._random.randrange(8))
        self._settle = lambda: self._handles.update({name: _Handle(size)})
        return [f"create {name} {size} {self._random.choice(self._gpus)}"]

    def _map(self) -> list[str]:
        name = self._any(name for name, handle in self._handles.items() if handle.held and not handle.mapped)
        if name is None:
            return []
        self._handles[name].mapped = True
        size = self._handles[name].size
        return [f"reserve {name} {size}", f"map {name} {name} {size}"]

    def _release(self) -> list[str]:
        name = self._any(name for name, handle in self._handles.items() if handle.held)
        if name is None:
            return []
        self._handles[name].held = False
        self._forget(name)
        return [f"release {name}", *self._here_and_there()]

    def _unmap(self) -> list[str]:
        name = self._any(name for name, handle in self._handles.items() if handle.mapped)
        if name is None:
            return []
        handle = self._handles[name]
        handle.mapped = False
        self._forget(name)
        return [f"unmap {name} {handle.size}", f"unreserve {name} {handle.size}", *self._here_and_there()]

    def _here_and_there(self) -> list[str]:
        """Let the library look at what each GPU holds: it does so where it is asked, or wants more."""
        looks = [command for gpu in reversed(self._gpus) for command in (f"current {gpu}", "info")]
        return [*looks, f"current {self._current}"]

    def _export(self) -> list[str]:
        # what was imported nobody passes on
        own = (name for name, handle in self._handles.items() if handle.held and not handle.imported)
        name, file = self._any(own), self._new(set(self._files))
        if name is None or file is None or len(self._files) > 4:
            return []
        self._files[file] = self._handles[name].size
        return [f"export {name} {file}"]

    def _import(self) -> list[str]:
        name, file = self._new(set(self._handles)), self._any(self._files)
        if name is None or file is None:
            return []
        self._handles[name] = _Handle(self._files[file], imported=True)
        return [f"import {name} {file}"]

    def _close(self) -> list[str]:
        file = self._any(self._files)
        if file is None:
            return []
        del self._files[file]
        return [f"close {file}", *self._here_and_there()]

    def _make_sparse(self) -> list[str]:
        name = self._new(self._arrays)
        # of a context that stays, for what is mapped in it would go with the other ones
        if name is None or self._current >= FIRST or len(self._sparse) > 2:
            return []
        self._settle = lambda: self._sparse.update({name: set()})
        return [f"sparse {name}"]

    def _map_part(self) -> list[str]:
        name, handle = self._any(self._sparse), self._any(name for name, each in self._handles.items() if each.held)
        if name is None or handle is None:
            return []
        part = self._random.randrange(3)
        self._sparse[name].add(part)
        return [f"mappart {name} {64 * part} {handle}", *self._here_and_there()]

    def _unmap_part(self) -> list[str]:
        name = self._any(name for name, parts in self._sparse.items() if parts)
        if name is None:
            return []
        return [f"unmappart {name} {64 * self._sparse[name].pop()}", *self._here_and_there()]

    def _free_sparse(self) -> list[str]:
        name = self._any(self._sparse)
        if name is None:
            return []
        del self._sparse[name]
        return [f"arrayfree {name}", *self._here_and_there()]

    def _forget(self, name: int) -> None:
        if not (self._handles[name].held or self._handles[name].mapped):
            del self._handles[name]
