"""Random programs of valid calls: memory of every kind in any order, contexts and pools that end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tests.gpu.random_memory import FIRST, MIB, NAMES, PAGE, PhysicalMemory


@dataclass
class _Context:
    gpu: int
    attached: int = 0
    blocks: set[int] = field(default_factory=set)
    arrays: set[int] = field(default_factory=set)
    mipmaps: set[int] = field(default_factory=set)


class Program(PhysicalMemory):
    """One program: each step is a few commands of the client, the last of which may be refused for want of memory."""

    def __init__(
        self, seed: int, largest: int, gpus: int = 2, without: Collection[str] = (), *, pools_end_first: bool = True
    ) -> None:
        """Allocate blocks of up to `largest` bytes on one GPU or two, and leave out the commands `without`.

        Unless `pools_end_first` a pool is destroyed when none of its blocks is left.
        """
        super().__init__(seed, range(gpus))
        self._largest = largest
        self._without = frozenset(without)
        self._pools_end_first = pools_end_first
        self._contexts = {name: _Context(name) for name in self._gpus}
        self._pools: dict[int, int] = {}
        self._pooled: dict[int, int] = {}
        self._graphs: set[int] = set()
        self._kept = [1] * gpus
        self.orphans: set[int] = set()
        """Blocks whose pool has gone."""
        self._steps: list[Callable[[], list[str]]] = [
            *[self._allocate] * 6,
            *[self._free] * 4,
            *[self._free_late] * 2,
            *[self._allocate_pooled] * 3,
            *[self._free_pooled] * 3,
            self._make_array,
            self._make_mipmap,
            self._free_array,
            self._make_pool,
            self._free_pool,
            self._trim,
            self._create,
            self._map,
            self._release,
            self._unmap,
            self._make_graph,
            self._free_graph,
            *[self._launch_graph] * 2,
            self._run_graph,
            self._capture,
            self._export,
            self._import,
            self._close,
            self._make_sparse,
            self._map_part,
            self._unmap_part,
            self._free_sparse,
            self._make_context,
            self._free_context,
            self._attach,
            self._detach,
            self._keep_primary,
            self._leave_primary,
            self._set_area,
            self._use_pool,
            *[self._switch] * 2,
            self._synchronise,
        ]

    def begin(self) -> list[str]:
        """Return what comes before all steps: contexts, two of each GPU, so that their size is sure."""
        sizes = [command for gpu in self._gpus for command in (f"context {FIRST} {gpu}", f"contextfree {FIRST}")]
        primary = [f"primary {gpu} {gpu}" for gpu in reversed(self._gpus)]
        return ["init", *primary[:-1], *sizes, primary[-1], "stream 0", "kernel 0 busy_300us"]

    def step(self) -> list[str]:
        """Return the next commands."""
        while True:
            commands = self._random.choice(self._steps)()
            if commands and self._without.isdisjoint(command.split()[0] for command in commands):
                return commands
            self._settle = lambda: None

    def done(self, refused: bool) -> None:
        """Count the last step, unless the limit has refused it."""
        if not refused:
            self._settle()
        self._settle = lambda: None

    @property
    def contexts(self) -> int:
        """How many contexts there are."""
        return len(self._contexts)

    @property
    def has_loose_charges(self) -> bool:
        """Whether memory is charged of which nobody but the driver knows when it goes."""
        return bool(self.orphans)

    def _size(self) -> int:
        kind = self._random.randrange(3)
        if kind == 0:
            return 1 + self._random.randrange(100_000)
        if kind == 1:
            return PAGE * (1 + self._random.randrange(3)) + self._random.choice((0, 512, 1))
        return 1 + self._random.randrange(self._largest)

    @property
    def _memory(self) -> set[int]:
        plain = {name for context in self._contexts.values() for name in context.blocks}
        return plain | self._pooled.keys() | self.orphans | self._graphs

    @property
    def _arrays(self) -> set[int]:
        return self._sparse.keys() | {name for context in self._contexts.values() for name in context.arrays}

    @property
    def _here(self) -> _Context:
        return self._contexts[self._current]

    def _allocate(self) -> list[str]:
        name, size = self._new(self._memory), self._size()
        if name is None:
            return []
        self._settle = lambda: self._here.blocks.add(name)
        rows = self._random.randrange(1, 40)
        return [
            self._random.choice(
                (f"malloc {name} {size}", f"managed {name} {size}", f"pitch {name} {size // rows + 1} {rows}")
            )
        ]

    def _free(self) -> list[str]:
        owner = self._random.choice(list(self._contexts.values()))
        name = self._any(owner.blocks)
        if name is None:
            return []
        owner.blocks.remove(name)
        return [f"free {name}"]

    def _free_late(self) -> list[str]:
        """Free a block behind what the context that is current has to do, and wait for it."""
        owner = self._random.choice(list(self._contexts.values()))
        name = self._any(owner.blocks)
        if name is None:
            return []
        owner.blocks.remove(name)
        # a kernel belongs to its context
        return [*(["launch 0 0"] if self._current == 0 else []), f"freeasync {name}", "sync"]

    def _make_array(self) -> list[str]:
        name = self._new(self._arrays)
        if name is None:
            return []
        self._settle = lambda: self._here.arrays.add(name)
        return [f"array {name} {self._size() // 512 + 1} {self._random.randrange(1, 512)}"]

    def _make_mipmap(self) -> list[str]:
        name = self._new({name for context in self._contexts.values() for name in context.mipmaps})
        if name is None:
            return []
        self._settle = lambda: self._here.mipmaps.add(name)
        return [f"mipmap {name} {self._size() // 1024 + 1} {self._random.randrange(4, 1024)} 3"]

    def _free_array(self) -> list[str]:
        owner = self._random.choice(list(self._contexts.values()))
        name, level = self._any(owner.arrays), self._any(owner.mipmaps)
        if name is not None:
            owner.arrays.remove(name)
            return [f"arrayfree {name}"]
        if level is not None:
            owner.mipmaps.remove(level)
            return [f"mipmapfree {level}"]
        return []

    def _make_pool(self) -> list[str]:
        name, gpu = self._new(set(self._pools)), self._random.choice(self._gpus)
        if name is None:
            return []
        self._pools[name] = gpu
        keeps = self._random.choice((0, 10**12))
        return [f"pool {name} {gpu}", f"threshold {name} {keeps}"]

    def _free_pool(self) -> list[str]:
        kept = set() if self._pools_end_first else set(self._pooled.values())
        name = self._any(self._pools.keys() - kept)
        if name is None:
            return []
        del self._pools[name]
        self.orphans |= {block for block, pool in self._pooled.items() if pool == name}
        self._pooled = {block: pool for block, pool in self._pooled.items() if pool != name}
        return [f"poolfree {name}"]

    def _allocate_pooled(self) -> list[str]:
        name, size = self._new(self._memory), self._size()
        if name is None:
            return []
        pool = self._any(self._pools)
        if pool is None or self._random.random() < 0.3:
            self._settle = lambda: self._pooled.update({name: -1})
            return [f"async {name} {size}"]
        self._settle = lambda: self._pooled.update({name: pool})
        return [f"frompool {name} {pool} {size}"]

    def _free_pooled(self) -> list[str]:
        name = self._any(self._pooled.keys() | self.orphans)
        if name is None:
            return []
        self._pooled.pop(name, None)
        how = self._random.choice(("free", "freeasync"))
        if name in self.orphans:
            self.orphans.remove(name)
            return [f"{how} {name}", "sync"]
        return [f"{how} {name}"]

    def _trim(self) -> list[str]:
        name = self._any(self._pools)
        return [] if name is None else [f"trim {name} {self._random.choice((0, self._largest))}"]

    def _synchronise(self) -> list[str]:
        return ["sync"]

    def _attach(self) -> list[str]:
        if self._current < FIRST:
            return []
        self._here.attached += 1
        return [f"attach {NAMES}"]

    def _detach(self) -> list[str]:
        if not self._here.attached:
            return []
        self._here.attached -= 1
        return [f"detach {self._current}"]

    def _keep_primary(self) -> list[str]:
        gpu = self._random.choice(self._gpus)
        self._kept[gpu] += 1
        return [f"primary {gpu} {gpu}", f"current {self._current}"]

    def _leave_primary(self) -> list[str]:
        gpu = self._random.choice(self._gpus)
        if self._kept[gpu] < 2:
            return []
        self._kept[gpu] -= 1
        return [f"unprimary {gpu}"]

    def _set_area(self) -> list[str]:
        area = self._random.randrange(3)
        size = self._random.choice(((1024, 1040, 1100), (1 << 20, 3 * MIB), (8 * MIB, 12 * MIB + 1))[area])
        return [f"limit {area} {size}"]

    def _use_pool(self) -> list[str]:
        name = self._any(self._pools)
        return [] if name is None else [f"usepool {name} {self._pools[name]}"]

    def _make_graph(self) -> list[str]:
        name = self._new(self._memory)
        if name is None or len(self._graphs) > 2 or self._current != 0:
            return []
        self._graphs.add(name)
        nodes = [
            command
            for _ in range(self._random.randrange(1, 4))
            for command in (f"allocnode {name} {name} {self._size()}", f"freenode {name} {name}")
        ]
        return [f"graph {name}", *nodes, f"instantiate {name} {name}"]

    def _launch_graph(self) -> list[str]:
        name = self._any(self._graphs)
        return [] if name is None or self._current != 0 else [f"graphlaunch {name}"]

    def _run_graph(self) -> list[str]:
        """Run a graph that frees what it allocates, on each GPU, and trim what is left."""
        return [f"rungraph {self._random.randrange(1, 4 * MIB)} {len(self._gpus)}"]

    def _capture(self) -> list[str]:
        size = self._random.randrange(1, 4 * MIB)
        return ["capture 0", f"asyncon {NAMES} {size} 0", f"endcapture 0 {NAMES}", f"graphfree {NAMES}"]

    def _free_graph(self) -> list[str]:
        name = self._any(self._graphs)
        if name is None:
            return []
        self._graphs.remove(name)
        return [f"execfree {name}", f"graphfree {name}"]

    def _make_context(self) -> list[str]:
        name, gpu = self._new(set(self._contexts)), self._random.choice(self._gpus)
        if name is None or len(self._contexts) > 6:
            return []

        def made() -> None:
            self._contexts[name] = _Context(gpu)
            self._current = name

        self._settle = made
        return [f"context {name} {gpu}"]

    def _free_context(self) -> list[str]:
        name = self._any(self._contexts.keys() - set(self._gpus) - {self._current})
        if name is None:
            return []
        del self._contexts[name]
        return [f"contextfree {name}"]

    def _switch(self) -> list[str]:
        self._current = self._random.choice(sorted(self._contexts))
        return [f"current {self._current}"]
