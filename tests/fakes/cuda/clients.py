"""Programs that use the fake driver, and the tenants that they run as, with limits, an account and the shim."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from appliance.gpu.layout import Limit, Total
from appliance.gpu.share_files import LimitsFile, create_account, read_account
from common.gpu.kinds import Compute
from tests.fakes.cuda.build import SOURCES, build, headers, stand_in
from tests.fakes.cuda.machine import Machine

ROOT = Path(__file__).parents[3]
OUT_OF_MEMORY = 2
INVALID_VALUE = 1
WAYS = ("linked", "dlsym", "proc:0", "proc:1", "proc:2")
MIB = 1 << 20
GIB = 1 << 30


def gpu_uuid(index: int) -> str:
    """The id of a fake GPU, as NVML writes it."""
    return f"GPU-00000000-0000-0000-0000-{index:012}"


def build_client(folder: Path, library: Path | None = None) -> Path:
    """Compile the client into a folder, for the driver in `library`, or for one that only its machine has."""
    sources = [
        SOURCES / f"{name}.c"
        for name in ("client", "client_contexts", "client_graphs", "client_work", "churn", "streams", "steps")
    ]
    flags: list[str | Path] = [
        "-std=gnu17",
        "-O1",
        "-g",
        "-fPIE",
        "-pie",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-isystem",
        headers(),
    ]
    client, driver = folder / "client", library or stand_in(folder / "stand-in")
    # an older driver does not have all functions that the client may call
    command: list[str | Path] = ["gcc", *flags, "-Wl,-z,lazy", "-o", client, *sources, driver, "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return client


def build_clock(folder: Path) -> Path:
    """Compile the virtual clock; returns the library that processes preload."""
    library = folder / "libvirtual-clock.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", library, SOURCES / "clock.c"], check=True)
    return library


def build_shim(folder: Path, variant: str = "test") -> Path:
    """Build the preload library that reads its paths from the environment; returns its path.

    Variants are those of its Makefile: `test`, `sanitized` (address; the one for threads lies beside it), `release`.
    PENSTOCK_SHIM names a library to take in the place of `test`, to see what fails with it.
    """
    if variant == "test" and (given := os.environ.get("PENSTOCK_SHIM")):
        return Path(given)
    source = ROOT / "appliance" / "gpu" / "shim"
    command: list[str | Path] = ["make", "-s", "-C", source, variant, f"PYTHON={sys.executable}", f"OUT={folder}"]
    subprocess.run(command, check=True)
    suffix = {"test": "-test", "sanitized": "-address", "release": ""}[variant]
    return folder / f"libpenstock-gpu{suffix}.so"


@dataclass(frozen=True)
class Answer:
    """The driver's code for one command, and the numbers it told."""

    code: int
    told: tuple[int, ...] = ()

    @classmethod
    def parse(cls, line: str) -> Answer:
        """Read one line of a client."""
        code, *told = (int(word) for word in line.split())
        return cls(code, tuple(told))


class Client:
    """A running client: it obeys one command after the other and is killed at the end of the block."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], user: int | None = None) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=user,
            bufsize=1,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, command: str) -> None:
        """Give a command without waiting for its answer."""
        assert self.process.stdin
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self) -> Answer:
        """Wait for the next answer; raises EOFError where the client has ended."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the client ended with {self.process.wait()}")
        return Answer.parse(line)

    def do(self, command: str) -> Answer:
        """Give a command and return its answer."""
        self.send(command)
        return self.answer()

    def must(self, *commands: str) -> Answer:
        """Give commands that succeed; returns the last answer."""
        answer = Answer(0)
        for command in commands:
            answer = self.do(command)
            assert answer.code == 0, f"{command}: {answer}"
        return answer


@dataclass(frozen=True)
class Bench:
    """What tests of the shim are built of: the folder of the fake libraries, the programs in it, and the shim."""

    library: Path

    @classmethod
    def build(cls, folder: Path) -> Bench:
        """Build everything into a folder."""
        build(folder)
        build_client(folder, folder / "libcuda.so.1")
        subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", folder / "smi", SOURCES / "smi.c"], check=True)
        build_shim(folder)
        return cls(folder)

    @property
    def client(self) -> Path:
        """The program that obeys commands."""
        return self.library / "client"

    @property
    def shim(self) -> Path:
        """The library that is tested."""
        return Path(os.environ.get("PENSTOCK_SHIM", self.library / "libpenstock-gpu-test.so"))


@dataclass
class Tenant:
    """A container's share of fake GPUs: `limits` are bytes per GPU, in the machine's order; 0 is no limit."""

    bench: Bench
    folder: Path
    limits: Sequence[int]
    gpus: int = 1
    machine_folder: Path | None = None
    milli: int = 500
    compute: Compute = Compute.OFF
    settings: dict[str, str] = field(default_factory=dict)
    preload: Sequence[Path] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        given = [Limit(gpu_uuid(index), size, self.milli, self.compute) for index, size in enumerate(self.limits)]
        self.file = LimitsFile.create(self.folder / "limits", given)
        create_account(self.folder / "account", len(given))
        self.machine = Machine(self.bench.library, (self.machine_folder or self.folder) / "state")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tenant's processes."""
        preload = [self.bench.shim] if self.preload is None else self.preload
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.bench.library),
            "LD_PRELOAD": " ".join(map(str, preload)),
            "PENSTOCK_TEST_LIMITS": str(self.folder / "limits"),
            "PENSTOCK_TEST_ACCOUNT": str(self.folder / "account"),
            "FAKE_GPU_COUNT": str(self.gpus),
            "FAKE_GPU_CUDA": "13050",
            **self.machine.environment,
            **self.settings,
        }

    def client(self, way: str = "proc:0", user: int | None = None) -> Client:
        """Start a client that finds the driver's functions in one of the `WAYS`."""
        return Client([self.bench.client, way], self.environment, user)

    def ready(self, way: str = "proc:0", user: int | None = None) -> Client:
        """Start a client with a context on the first GPU."""
        client = self.client(way, user)
        client.must("init", "primary 0 0")
        return client

    def total(self, gpu: int = 0) -> Total:
        """What the account says of a GPU."""
        return read_account(self.folder / "account")[gpu]

    def used(self, gpu: int = 0) -> int:
        """Bytes that the account charges on a GPU."""
        return self.total(gpu).used_bytes


def crowd(share: Tenant, count: int, *commands: str, timeout: float = 280) -> list[list[Answer]]:
    """Run as many clients at the same time, "SEED" in commands being the number of each; returns their answers.

    Raises AssertionError where one fails or says anything of errors. None of them is left running.
    """
    text = "\n".join(["init", "primary 0 0", *commands, ""])
    clients = [start(share) for _ in range(count)]
    answers = []
    try:
        for number, client in enumerate(clients):
            feed(client, text.replace("SEED", str(number + 1)))
        for client in clients:
            output, errors = client.communicate(timeout=timeout)
            assert (client.returncode, errors) == (0, ""), output
            answers.append([Answer.parse(line) for line in output.splitlines()])
    finally:
        for client in clients:
            client.kill()
            client.wait()
    return answers


def start(share: Tenant, way: str = "proc:0") -> subprocess.Popen[str]:
    """Start a client that waits for all its commands at once."""
    command: list[str | Path] = [share.bench.client, way]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=share.environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def feed(client: subprocess.Popen[str], text: str) -> None:
    """Give a client all its commands."""
    assert client.stdin
    client.stdin.write(text)
    client.stdin.close()
    client.stdin = None
