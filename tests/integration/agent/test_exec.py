"""Commands and files in sessions: the real command, a real control API, a real agent, Docker."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from tests.forks import PENSTOCK
from tests.integration.agent.test_command_line import User, admin, running  # noqa: F401

EVERY_BYTE = bytes(range(256)) * 4096


def environment(admin: User) -> dict[str, str]:  # noqa: F811
    return {**os.environ, **admin.environment}


def execute(
    admin: User,  # noqa: F811
    *words: str,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([PENSTOCK, *words], input=stdin, env=environment(admin), capture_output=True, check=False)


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_output_and_errors_come_apart_with_the_exit_code(admin: User, running: str) -> None:  # noqa: F811
    done = execute(admin, "exec", running, "--", "sh", "-c", "echo out; echo err >&2; echo on; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, b"out\non\n", b"err\n")


def test_every_byte_goes_through_a_pipe_both_ways(admin: User, running: str) -> None:  # noqa: F811
    done = execute(admin, "exec", running, "--", "cat", stdin=EVERY_BYTE)
    assert (done.returncode, done.stdout == EVERY_BYTE, done.stderr) == (0, True, b"")


def test_options_behind_the_dashes_are_the_commands_own(admin: User, running: str) -> None:  # noqa: F811
    done = execute(admin, "exec", running, "--", "echo", "-t", "--container", "9", "$HOME")
    assert done.stdout == b"-t --container 9 $HOME\n"


def test_a_program_that_is_not_there(admin: User, running: str) -> None:  # noqa: F811
    done = execute(admin, "exec", running, "--", "no-such-program")
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr
    assert done.stdout == b""


def test_who_goes_away_ends_the_command_and_what_it_runs(admin: User, running: str) -> None:  # noqa: F811
    words: list[str | Path] = [PENSTOCK, "exec", running, "--", "sh", "-c", "echo begun; sleep 98765; echo never"]
    client = subprocess.Popen(words, env=environment(admin), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout
    assert client.stdout.readline() == b"begun\n"
    until(sleepers)
    client.send_signal(signal.SIGKILL)
    client.wait()
    until(lambda: not sleepers())


def sleepers() -> list[str]:
    found = subprocess.run(["pgrep", "-f", "^sleep 98765$"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_what_is_read_slowly_waits_and_is_held_nowhere(admin: User, running: str) -> None:  # noqa: F811
    """A GiB is asked for, and only a MiB of it read: the command has not written the rest."""
    words: list[str | Path] = [
        PENSTOCK,
        "exec",
        running,
        "--",
        "sh",
        "-c",
        "dd if=/dev/zero bs=1M count=1024 2>/tmp/dd; echo $? >/tmp/rc",
    ]
    client = subprocess.Popen(words, env=environment(admin), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert client.stdout
    assert client.stdout.read(1 << 20) == bytes(1 << 20)
    time.sleep(2)
    assert execute(admin, "exec", running, "--", "cat", "/tmp/rc").returncode == 1
    memory = int(Path(f"/proc/{client.pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    assert memory < 150_000
    client.kill()
    client.wait()


def test_a_container_that_is_not_there(admin: User, running: str) -> None:  # noqa: F811
    done = execute(admin, "exec", running, "--container", "1", "--", "true")
    assert done.returncode == 6
    assert b"has 1 container, numbered from 0" in done.stderr


def test_a_file_goes_in_and_comes_back_as_it_was(admin: User, running: str, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "run.sh"
    file.write_bytes(EVERY_BYTE)
    file.chmod(0o751)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    admin("cp", str(file), f"{running}:/tmp/there.sh")
    stat = execute(admin, "exec", running, "--", "stat", "-c", "%a %Y %u %g", "/tmp/there.sh")
    assert stat.stdout == b"751 1700000000 0 0\n"
    admin("cp", f"{running}:/tmp/there.sh", str(tmp_path / "back.sh"))
    back = tmp_path / "back.sh"
    assert back.read_bytes() == EVERY_BYTE
    assert (back.stat().st_mode & 0o7777, back.stat().st_mtime) == (0o751, 1_700_000_000)


def test_folders_go_whole_and_into_folders_that_are_there(admin: User, running: str, tmp_path: Path) -> None:  # noqa: F811
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / ("n" * 120)).write_text("long")
    (tree / "link").symlink_to("sub")
    (tree / "empty").mkdir()
    admin("cp", str(tree), f"{running}:/tmp/new")
    admin("cp", str(tree), f"{running}:/tmp")
    listed = execute(admin, "exec", running, "--", "sh", "-c", "cd /tmp/new && find . | sort; readlink link").stdout
    assert listed == f".\n./empty\n./link\n./sub\n./sub/{'n' * 120}\nsub\n".encode()
    assert execute(admin, "exec", running, "--", "test", "-d", "/tmp/tree/sub").returncode == 0
    (tmp_path / "here").mkdir()
    admin("cp", f"{running}:/tmp/tree", str(tmp_path / "here"))
    copied = tmp_path / "here" / "tree"
    assert (copied / "sub" / ("n" * 120)).read_text() == "long"
    assert (copied / "link").readlink() == Path("sub")
    assert (copied / "empty").is_dir()


def test_what_is_not_there_is_not_found(admin: User, running: str, tmp_path: Path) -> None:  # noqa: F811
    assert execute(admin, "cp", f"{running}:/no/such", str(tmp_path)).returncode == 6
    assert execute(admin, "cp", str(tmp_path / "none"), f"{running}:/tmp").returncode == 2
    assert execute(admin, "cp", str(tmp_path), f"{running}:/no/such/folder").returncode == 6
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_in_a_session_is_replaced_by_its_like_alone(
    admin: User,  # noqa: F811
    running: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    tree, file = tmp_path / "tree", tmp_path / "file"
    tree.mkdir()
    file.write_text("new")
    os.mkfifo(tree / "pipe")
    script = "mkdir /tmp/a; cd /tmp/a; echo old >here; mkfifo pipe; touch real; ln -s real link"
    assert execute(admin, "exec", running, "--", "sh", "-c", script).returncode == 0
    for source, target in ((tree, "/tmp/a/here"), (file, "/tmp/a/pipe"), (file, "/dev/null")):
        done = execute(admin, "cp", str(source), f"{running}:{target}")
        assert (done.returncode, b"something else is there already" in done.stderr) == (2, True), done
    admin("cp", str(file), f"{running}:/tmp/a/link")
    look = "cd /tmp/a; test -p pipe -a -c /dev/null && cat here real && readlink link"
    assert execute(admin, "exec", running, "--", "sh", "-c", look).stdout == b"old\nnewreal\n"
    done = execute(admin, "cp", str(tree), f"{running}:/tmp/a/tree")
    assert (done.returncode, b"tree/pipe: was left out" in done.stderr) == (2, True), done
    done = execute(admin, "cp", str(file), f"{running}:/none/file")
    assert (done.returncode, b"/none: is no folder of the session" in done.stderr) == (6, True), done


def test_what_a_session_sends_of_links_out_of_the_target_is_left_out(
    admin: User,  # noqa: F811
    running: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    script = "mkdir /tmp/evil; cd /tmp/evil; echo >good; ln -s /etc out; ln -s ../../up up; mkfifo pipe"
    assert execute(admin, "exec", running, "--", "sh", "-c", script).returncode == 0
    done = execute(admin, "cp", f"{running}:/tmp/evil", str(tmp_path))
    assert done.returncode == 2
    assert {path.name for path in (tmp_path / "evil").iterdir()} == {"good"}
    for name in (b"evil/out", b"evil/up", b"evil/pipe"):
        assert name in done.stderr


def test_a_tar_of_the_sessions_own_making_writes_nothing_elsewhere(
    admin: User,  # noqa: F811
    running: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Whoever owns the session owns what `tar` is there."""
    outside, target = tmp_path / "outside", tmp_path / "target"
    target.mkdir()
    made = subprocess.run(
        ["tar", "-cf", "-", "-P", "--transform", "s,.*,../outside,", "/etc/hostname"], capture_output=True, check=True
    )
    execute(admin, "exec", running, "--", "sh", "-c", "cat >/tmp/made.tar", stdin=made.stdout)
    fake = "rm /bin/tar && printf '#!/bin/sh\\ncat /tmp/made.tar\\n' >/bin/tar && chmod +x /bin/tar"
    assert execute(admin, "exec", running, "--", "sh", "-c", fake).returncode == 0
    done = execute(admin, "cp", f"{running}:/etc/hostname", str(target))
    assert done.returncode == 3
    assert b"../outside" in done.stderr
    assert not outside.exists()
    assert list(target.iterdir()) == []


def test_bash_waits_for_a_session_that_is_on_its_way(admin: User) -> None:  # noqa: F811
    words = ("-i", "busybox", "-g", "0.5", "--interactive", "--command", "sleep", "--args", "infinity")
    admin("submit", "late", *words)
    try:
        done = execute(admin, "bash", "late", stdin=b"echo in\n")
        assert (done.returncode, done.stdout) == (0, b"in\n")
    finally:
        admin("delete", "late")
        admin.until("late", "TERMINATED")
    done = execute(admin, "bash", "late")
    assert done.returncode == 7
    assert b"its log is still there" in done.stderr


@pytest.mark.parametrize("verb", [("bash",), ("exec", "--", "true")])
def test_a_session_that_is_not_there(admin: User, verb: tuple[str, ...]) -> None:  # noqa: F811
    assert execute(admin, verb[0], "nobody", *verb[1:]).returncode == 6


def test_a_restart_keeps_name_and_id_and_begins_with_new_containers(
    admin: User,  # noqa: F811
    running: str,  # noqa: F811
    engine: docker.DockerClient,
) -> None:
    before = admin.json("get", running)
    execute(admin, "exec", running, "--", "touch", "/tmp/left")
    admin("restart", running, "--wait")
    after = admin.until(running, "RUNNING")
    assert (after["id"], after["attempt"]) == (before["id"], before["attempt"] + 1)
    assert execute(admin, "exec", running, "--", "test", "-e", "/tmp/left").returncode == 1
    assert "restarted by admin" in admin("get", running)
    found = engine.containers.list(all=True, filters={"label": f"io.penstock.session={after['id']}"})
    assert len(found) == 1
