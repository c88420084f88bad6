"""Random programs on a card: after every call the account is held against what NVML sees."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random

from tests.gpu.card import MIB, ROOT, Card, Program, Tenant, leashed
from tests.gpu.memory_checks import LIMIT, OUT_OF_MEMORY
from tests.gpu.outcomes import Figure
from tests.gpu.random_programs import Program as Steps

CLIENT = ROOT / "lib/client"
LARGEST = 24 * MIB
ROOM = 600 * MIB
"""What the limit leaves to programs, beside the contexts that they begin with."""
STEPS = 400
SECONDS = 30.0
PROGRAMS = 2
AHEAD = 10
"""Steps that a program is given at once before it is killed."""
GONE_S = 5.0
"""So long a card may take to get back what a killed program held."""
GROWTH_MIB = 8
"""By so much each context may grow while it is used, which nobody charges."""
BEHIND_MIB = 16
"""So much may be charged that NVML does not see: what small blocks and arrays share."""
WITHOUT = ("managed", "sparse", "limit")
"""Commands that say nothing on a card: managed memory, and areas for `malloc` and `printf` of kernels, take none of it
until they are used, and what stands behind a sparse array lies in tiles, whose size differs."""


class _Client:
    """A program that obeys commands, in a tenant."""

    def __init__(self, card: Card, tenant: Tenant) -> None:
        self._program = card.hold(Program([*leashed(), str(CLIENT), "proc:0"], tenant.environment))

    def send(self, *commands: str) -> None:
        self._program.write("".join(f"{command}\n" for command in commands))

    def do(self, command: str) -> int:
        """Obey a command; returns the driver's code. Raises ProgramError where the program ends."""
        self.send(command)
        return int(self._program.text().split()[0])

    def kill(self) -> None:
        self._program.kill()


@dataclass
class _Seen:
    """What came of the programs so far; the numbers in MiB, and the commands behind which the first two were most."""

    steps: int = 0
    refused: int = 0
    grown: float = 0.0
    beyond: tuple[float, str] = (0.0, "")
    behind: tuple[float, str] = (0.0, "")
    over_limit: float = 0.0
    left: float = 0.0
    failed: list[str] = field(default_factory=list)


@dataclass
class _Round:
    """Programs in a tenant, and what the card had in use before them; `apart` is what contexts at rest are charged less
    than NVML sees.
    """

    card: Card
    seed: int
    seen: _Seen

    def __post_init__(self) -> None:
        self._before, self._tenant = self.card.used(), self.card.tenant(LIMIT)
        self._apart = 0.0
        # a driver of version 580 crashes by itself where a stream frees a block whose pool has gone
        self._programs = [
            Steps(self.seed + 100 * number, LARGEST, 1, WITHOUT, pools_end_first=False) for number in range(PROGRAMS)
        ]
        self._clients = [_Client(self.card, self._tenant) for _ in self._programs]

    def run(self, steps: int) -> None:
        """Run so many steps of any of them and kill them in the middle, or end where a command fails."""
        chance = Random(self.seed)
        for client, program in zip(self._clients, self._programs, strict=True):
            if not self._obey(client, [*program.begin(), "launch 0 0", "sync"]):
                return
        self._apart = self._held - self._charged
        self._tenant.change(self._tenant.total.used_bytes + ROOM, 1000)
        for _ in range(steps):
            number = chance.randrange(PROGRAMS)
            commands = self._programs[number].step()
            if not self._obey(self._clients[number], commands[:-1]):
                return
            code = self._clients[number].do(commands[-1])
            if code not in {0, OUT_OF_MEMORY}:
                self._fail(commands[-1], code)
                return
            self._programs[number].done(refused=code == OUT_OF_MEMORY)
            self.seen.steps += 1
            self.seen.refused += code == OUT_OF_MEMORY
            self._look(commands)
        for client, program in zip(self._clients, self._programs, strict=True):
            client.send(*(command for _ in range(AHEAD) for command in program.step()))
        time.sleep(chance.random() / 100)
        for client in self._clients:
            client.kill()
        self._look_at_what_is_left()

    @property
    def _held(self) -> float:
        return (self.card.used() - self._before) / MIB

    @property
    def _charged(self) -> float:
        return self._tenant.total.used_bytes / MIB

    def _fail(self, command: str, code: int) -> None:
        self.seen.failed.append(f"{command.split(maxsplit=1)[0]}: {code}")

    def _obey(self, client: _Client, commands: list[str]) -> bool:
        for command in commands:
            if code := client.do(command):
                self._fail(command, code)
                return False
        return True

    def _look(self, commands: list[str]) -> None:
        held, charged, last = self._held, self._charged, f"behind {', '.join(commands)}"
        uncharged = self._apart + GROWTH_MIB * sum(program.contexts for program in self._programs)
        self.seen.beyond = max(self.seen.beyond, (held - charged - uncharged, last))
        self.seen.grown = max(self.seen.grown, held - charged)
        self.seen.over_limit = max(self.seen.over_limit, held - uncharged - self._tenant.limit.memory_bytes / MIB)
        if not any(program.has_loose_charges for program in self._programs):
            self.seen.behind = max(self.seen.behind, (charged - held, last))

    def _look_at_what_is_left(self) -> None:
        """Look at what the card, and the account beside a new program, still show of killed ones."""
        until = time.monotonic() + GONE_S
        while self._held > 0 and time.monotonic() < until:
            time.sleep(0.01)
        self.seen.left = max(self.seen.left, self._held)
        self._obey(_Client(self.card, self._tenant), ["init", "primary 0 0", "info"])
        self.seen.left = max(self.seen.left, self._charged - self._held)


def random_programs(card: Card) -> list[Figure]:
    """After each step of random programs the account is what NVML sees them hold, and killed ones leave nothing."""
    seen, begun, seed = _Seen(), time.monotonic(), 0
    while seed == 0 or time.monotonic() - begun < (2.0 if card.quick else SECONDS):
        _Round(card, seed, seen).run(STEPS // 4 if card.quick else STEPS)
        card.end_programs()
        seed += 1
    growth = f"beside {GROWTH_MIB} MiB of each context"
    failed = "; ".join(sorted(set(seen.failed))[:5])
    beyond, behind = seen.beyond, seen.behind
    return [
        Figure("steps", seen.steps, note=f"{seed} times {PROGRAMS} programs"),
        Figure("refused by the limit", seen.refused, wanted=1, bound="least"),
        Figure("failed otherwise", len(seen.failed), wanted=0, note=failed),
        Figure("NVML beyond the account, growth of contexts included", round(seen.grown, 1), "MiB"),
        Figure("NVML beyond the account", round(beyond[0], 1), "MiB", 0, bound="most", note=f"{growth} {beyond[1]}"),
        Figure("the account beyond NVML", round(behind[0], 1), "MiB", BEHIND_MIB, bound="most", note=behind[1]),
        Figure("NVML beyond the limit", round(seen.over_limit, 1), "MiB", 0, bound="most", note=growth),
        Figure("left by killed programs", round(seen.left, 1), "MiB", BEHIND_MIB, bound="most"),
    ]
