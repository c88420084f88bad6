"""The multi-process service: limits of its clients, and what they hear when one of its processes ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.gpu import remains
from tests.gpu.card import MIB, Card, Program, ProgramError, leashed
from tests.gpu.counters import Counters, open_counters
from tests.gpu.memory_checks import ends_at
from tests.gpu.outcomes import Figure, NotJudged
from tests.gpu.rows import EVEN

LIMIT = 2048 * MIB
CONTROL = "nvidia-cuda-mps-control"
START_S = 10.0
HEARD_S = 5.0
"""The longest after the end of its server that a client may go on without an error."""
ANSWER_S = 10.0
CORES = (30, 70)
POINTS = 5.0
"""Points by which the work of a client may differ from its part of the cores."""


@dataclass
class Service:
    """A daemon of MPS for the card alone, with folders of its own."""

    card: Card
    control: str
    pipe: Path
    environment: dict[str, str]

    def begin(self) -> Program:
        """Start the daemon; raises NotJudged where it does not start."""
        daemon = self.card.hold(Program([*leashed(), self.control, "-f"], self.environment))
        until = time.monotonic() + START_S
        while not (self.pipe / "control").exists():
            if daemon.process.poll() is not None or time.monotonic() > until:
                raise NotJudged(f"{CONTROL} does not start here")
            time.sleep(0.05)
        return daemon

    def client(self, what: str = "waits") -> Program:
        """Start a program that hangs on the service, and let it come to work."""
        program = self.card.start(self.environment | self.limit, what)
        program.line()
        return program

    @property
    def limit(self) -> dict[str, str]:
        """The limit of memory, as a client is given it."""
        return {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={LIMIT // MIB}M"}

    def fill(self) -> dict[str, int]:
        """Let a program take what it gets."""
        found: dict[str, int] = self.card.run(self.environment | self.limit, "fill", "plain")
        return found

    def say(self, what: str) -> str:
        """Say something to the daemon and return its answer, "" where it gives none."""
        with suppress(subprocess.TimeoutExpired):
            told = subprocess.run(
                [self.control],
                input=f"{what}\n",
                env=self.environment,
                text=True,
                capture_output=True,
                timeout=ANSWER_S,
                check=False,
            )
            return told.stdout.strip() if told.returncode == 0 else ""
        return ""

    def servers(self) -> list[int]:
        """The processes of servers."""
        return [int(word) for word in self.say("get_server_list").split() if word.isdigit()]


@contextmanager
def service(card: Card) -> Iterator[Service]:
    """Have a service; raises NotJudged where that cannot be. Its server, which would outlive its daemon, ends, too."""
    control = shutil.which(CONTROL)
    if control is None:
        raise NotJudged(f"there is no {CONTROL} here")
    if os.geteuid() != 0:
        raise NotJudged("a daemon of MPS that ends for certain needs root")
    with tempfile.TemporaryDirectory(prefix="penstock-mps-") as name:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": f"{name}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{name}/log"}
        for folder in folders.values():
            Path(folder).mkdir()
        made = Service(card, control, Path(name, "pipe"), card.bare | folders)
        try:
            yield made
        finally:
            made.say("quit -t 1")
            card.end_programs()
            # the server of a daemon that was killed hears of nothing
            remains.end(card.folder)


def _goes_on(client: Program) -> str:
    """Return whether a client still computes, in words."""
    try:
        client.ask()
    except ProgramError as error:
        return str(error)
    return "goes on"


def _heard(client: Program) -> str:
    """Return what a client hears of a fault that was not its own, which may take a moment: "goes on" for nothing."""
    until = time.monotonic() + HEARD_S
    while (heard := _goes_on(client)) == "goes on" and time.monotonic() < until:
        time.sleep(0.1)
    return heard


def _hears(client: Program) -> list[Figure]:
    """Return figures of a client whose service has just ended: it hears of it soon."""
    begun = time.monotonic()
    heard = _heard(client)
    took = time.monotonic() - begun
    return [
        Figure("a client that computes", heard if heard == "goes on" else "fails", wanted="fails", note=heard),
        Figure("it hears of it after", round(took, 1), "s", HEARD_S + 1, bound="most"),
    ]


def limits(card: Card) -> list[Figure]:
    """A client of MPS ends at the limit of its environment; others go on when one is killed that does nothing."""
    with service(card) as made:
        made.begin()
        figures = ends_at(made.fill(), LIMIT / MIB)
        stays, goes = made.client(), made.client()
        goes.kill()
        return [*figures, Figure("a client beside one that is killed at rest", _goes_on(stays), wanted="goes on")]


def killed_at_work(card: Card) -> list[Figure]:
    """Others go on when a client is killed at work that the service has terminated; what they hear where it has not."""
    with service(card) as made:
        made.begin()
        # one that does nothing has yet to end, where those who compute have failed
        stays, rests = made.client(), made.client("show")
        terminated = made.client("busy")
        for server in made.servers():
            made.say(f"terminate_client {server} {terminated.process.pid}")
        terminated.kill()
        after = _goes_on(stays)
        made.client("busy").kill()
        heard = _heard(stays)
        states = [made.say(f"get_server_status {server}") for server in made.servers()]
        for client in (stays, rests):
            client.kill()
        until = time.monotonic() + HEARD_S
        while any(made.say(f"get_server_status {each}") == "FAULT" for each in made.servers()):
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        return [
            Figure("a client beside one that was terminated before", after, wanted="goes on"),
            Figure("a client beside one that was not", heard if heard == "goes on" else "fails", note=heard),
            Figure("its server is then", ", ".join(states) or "gone"),
            *ends_at(made.fill(), LIMIT / MIB),
        ]


def without_its_daemon(card: Card) -> list[Figure]:
    """Clients whose control daemon is killed hear of it and do not hang; those of the next one have their limit.

    A program that begins while there is no daemon works without MPS, and so without a limit.
    """
    with service(card) as made:
        daemon = made.begin()
        client = made.client()
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait()
        figures = _hears(client)
        client.kill()
        without = card.start(made.environment | made.limit, "blocks", "2", str(LIMIT))
        without.line()
        beyond = "no" if without.ask()["refused"] else "yes"
        without.kill()
        (made.pipe / "control").unlink(missing_ok=True)
        made.begin()
        return [
            *figures,
            Figure("a program that begins without a daemon gets more than its limit", beyond),
            *ends_at(made.fill(), LIMIT / MIB),
        ]


def without_its_server(card: Card) -> list[Figure]:
    """Clients whose server is killed hear of it and do not hang; the daemon has another one for the next program."""
    with service(card) as made:
        made.begin()
        client = made.client()
        if not (servers := made.servers()):
            raise NotJudged(f"{CONTROL} lists no server")
        for server in servers:
            os.kill(server, signal.SIGKILL)
        figures = _hears(client)
        client.kill()
        return [*figures, *ends_at(made.fill(), LIMIT / MIB)]


def cores(card: Card) -> list[Figure]:
    """Two clients with parts of the cores compute as much as these are, alone and beside each other."""
    kernel = EVEN.parts[0][0]
    found: dict[str, Any] = card.run(card.bare, "calibrate", kernel)
    work = {"work": asdict(EVEN), "rounds": found["rounds"]}
    with service(card) as made, tempfile.TemporaryDirectory(prefix="penstock-mps-") as name:
        made.begin()
        counters = [_worker(made, part, work, Path(name, str(part))) for part in CORES]
        figures = []
        for begin, said in ((0, "alone"), (1, "beside the other")):
            for number, part in enumerate(CORES):
                working = [each for other, each in enumerate(counters) if begin or other == number]
                got = _part(working, counters[number], found["lengths"][kernel], 0.5 if card.quick else 2.0)
                figures.append(Figure(f"{part} % of the cores, {said}", round(got, 2), "%", part, POINTS))
        return figures


def _worker(made: Service, part: int, work: dict[str, Any], path: Path) -> Counters:
    """Start a client with a part of the cores that rests until it is let go."""
    cores = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(part)}
    program = made.card.start(made.environment | cores, "work", json.dumps(work), str(path))
    counters = open_counters(path)
    until = time.monotonic() + START_S
    while not counters.ready:
        if time.monotonic() > until or program.process.poll() is not None:
            # its next line is its complaint
            program.line()
            raise ProgramError("a client was not ready in time")
        time.sleep(0.01)
    counters.pause = counters.go = 1
    return counters


def _part(working: Sequence[Counters], watched: Counters, length_ns: float, seconds: float) -> float:
    """Return the per cent of the whole card's work that one of the clients gets done while some of them work."""
    for each in working:
        each.pause = 0
    time.sleep(seconds / 4)
    before, begun = watched.done[0], time.monotonic()
    time.sleep(seconds)
    done, took = watched.done[0] - before, time.monotonic() - begun
    for each in working:
        each.pause = 1
    # the last steps end before the next ones are watched
    time.sleep(seconds / 4)
    return 100 * done * length_ns / 1e9 / took
