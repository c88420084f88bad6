"""A real Slurm of this machine alone: munge, a controller, and a daemon for each node, all on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from appliance.agent import lease_holder
from tests.integration.agent.conftest import free_port

START_S, HEARD_S = 60, 150
CONF = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/%n.spool
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/{tracks}
TaskPlugin=task/{tasks}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
GresTypes=fgpu
ReturnToService=2
MpiDefault=none
KillWait={kill_wait_s}
MessageTimeout=10
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
MinRAMSpace=512
"""
NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=64000 Gres=fgpu:4000"
)


@dataclass
class Slurm:
    """The processes, by their names, and the folder with all that they write."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def holder(self) -> str:
        """The program that holds leases, at the socket of an agent that a test may start."""
        return str(self.folder / "hold-lease")

    @property
    def agents_socket(self) -> Path:
        return self.folder / "agent.sock"

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([*words], stdout=log, stderr=log, env=self._environment)

    def start_munge(self) -> None:
        self.start("munged", *_munged(self.folder))

    def start_controller(self) -> None:
        self.start("slurmctld", "/usr/sbin/slurmctld", "-D", "-f", str(self.conf))

    def start_node(self, name: str, conf: Path | None = None) -> None:
        self.start(name, "/usr/sbin/slurmd", "-D", "-f", str(conf or self.conf), "-N", name)

    def conf_with_another_key(self) -> Path:
        """Start another munge, which knows another key, and return the configuration that names it."""
        folder = self.folder / "other"
        folder.mkdir()
        _new_key(folder)
        conf = folder / "slurm.conf"
        conf.write_text(self.conf.read_text().replace(f"socket={self.folder}/", f"socket={folder}/"))
        (folder / "cgroup.conf").write_text("")
        self.start("other munged", *_munged(folder))
        return conf

    def stop(self, name: str) -> None:
        """Stop a process in order: a controller that is killed gives the numbers of its last jobs to others."""
        self.processes[name].terminate()
        self.processes.pop(name).wait(START_S)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(START_S)

    def stop_all(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(START_S)

    def ask(self, *words: str) -> str:
        done = subprocess.run([*words], capture_output=True, text=True, check=True, env=self._environment)
        return done.stdout

    def jobs(self) -> list[tuple[str, str]]:
        """Return state and comment of each job that holds something or waits, of all accounts."""
        listed = self.ask("squeue", "--noheader", "--format=%T|%k").splitlines()
        return [(state, comment) for state, _, comment in (line.partition("|") for line in listed)]

    def clear(self) -> None:
        """Cancel all jobs, and wait until none holds anything: one that completes does for a while."""
        # a node whose answer was lost once is asked again after a hundred seconds
        deadline = time.monotonic() + HEARD_S
        while listed := self.ask("squeue", "--noheader", "--format=%A %U").split():
            self.ask("scancel", "--quiet", *listed[::2])
            assert time.monotonic() < deadline, listed
            time.sleep(0.2)

    def wait(self, what: str, *words: str) -> None:
        """Wait until a command says something."""
        deadline = time.monotonic() + HEARD_S
        while True:
            done = subprocess.run([*words], capture_output=True, text=True, check=False, env=self._environment)
            if what in done.stdout:
                return
            assert time.monotonic() < deadline, f"{words}: {done.stdout}{done.stderr}"
            time.sleep(0.2)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}


@contextmanager
def running_slurm(
    names: Sequence[str] = ("worker1",),
    cores: int = 16,
    *,
    cgroups: bool = False,
    kill_wait_s: int = 2,
    more: Sequence[str] = (),
) -> Iterator[Slurm]:
    """Run Slurm with nodes of 4 GPUs and so many cores each; with `cgroups` it keeps jobs in some of their own.

    Lines with `more` of its configuration count beside those that all tests have.
    """
    with ExitStack() as stack:
        # not `tmp_path`: the address of a socket has 107 bytes
        slurm = Slurm(Path(stack.enter_context(TemporaryDirectory())))
        (slurm.folder / "state").mkdir()
        _new_key(slurm.folder)
        nodes = [NODE.format(name=name, port=free_port(), cores=cores) for name in names]
        partition = f"PartitionName=penstock Nodes={','.join(names)} Default=YES MaxTime=INFINITE State=UP"
        kinds = {"tracks": "cgroup", "tasks": "cgroup"} if cgroups else {"tracks": "pgid", "tasks": "none"}
        conf = CONF.format(port=free_port(), folder=slurm.folder, kill_wait_s=kill_wait_s, **kinds)
        (slurm.folder / "cgroup.conf").write_text(CGROUP_CONF if cgroups else "")
        program = f'#!/bin/sh\nexec /usr/bin/python3 {lease_holder.__file__} "$1" {slurm.agents_socket}\n'
        Path(slurm.holder).write_text(program)
        Path(slurm.holder).chmod(0o755)
        slurm.conf.write_text("\n".join([conf, *more, *nodes, partition, ""]))
        stack.callback(slurm.stop_all)
        slurm.start_munge()
        slurm.start_controller()
        for name in names:
            slurm.start_node(name)
        slurm.wait(f"idle {len(names)}", "sinfo", "--noheader", "--format=%T %D")
        yield slurm
        # their steps outlive the daemons
        slurm.clear()


def _new_key(folder: Path) -> None:
    # munge refuses a socket in a folder that others cannot pass
    folder.chmod(0o755)
    (folder / "munge").mkdir(mode=0o700)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)


def _munged(folder: Path) -> Iterator[str]:
    yield shutil.which("munged", path="/usr/sbin") or "munged"
    yield from ("--foreground", "--force", f"--key-file={folder}/munge/key", f"--socket={folder}/munge.sock")
    yield from (f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
