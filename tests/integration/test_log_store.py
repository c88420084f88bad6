"""Journals of nodes on their way to the master: systemd's own programs, and the real edge of the agents between."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from api.resources.logs import senders
from tests import journals
from tests.integration.agent.conftest import Authority, authority, make_authority  # noqa: F401
from tests.integration.edge import Edge, rendered, running_edge

UPLOAD_S = 60


FILE_MIB = 16


@contextmanager
def store(folder: Path, node: str) -> Iterator[Path]:
    """Run the store of a node, as its unit says; gives the folder of the sockets."""
    unit = rendered(
        "log_store",
        "etc/systemd/system/penstock-log-store@.service",
        log_store_folder=str(folder),
        log_store_file_mib=FILE_MIB,
    )
    known = dict(line.partition("=")[::2] for line in unit.replace("\\\n", "").replace("%i", node).splitlines())
    assert known["LimitFSIZE"] == f"{FILE_MIB}M"
    command = ["prlimit", f"--fsize={FILE_MIB << 20}", *known["ExecStart"].split()]
    (folder / node).mkdir()
    socket = folder / f"{node}.sock"
    process = subprocess.Popen(["systemd-socket-activate", "-l", str(socket), *command])
    try:
        deadline = time.monotonic() + 60
        while not socket.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield folder
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def folder() -> Iterator[Path]:
    # not `tmp_path`: the address of a socket has 107 bytes
    with TemporaryDirectory() as folder:
        yield Path(folder)


def upload(edge: Edge, source: Path, authority: Authority, certificate: Path, key: Path) -> subprocess.Popen[str]:  # noqa: F811
    trusted = ["--key", str(key), "--cert", str(certificate), "--trust", str(authority.ca)]
    where = [f"--url=https://127.0.0.1:{edge.agents}/journal", f"--directory={source}"]
    # the state is written beside and renamed: never name a device here
    state = f"--save-state={source.with_suffix('.state')}"
    return subprocess.Popen([journals.UPLOAD, *where, state, *trusted], stderr=subprocess.PIPE, text=True)


def stored(folder: Path, match: str) -> list[dict[str, str]]:
    files = f"--file={folder / senders.FILES}"
    words = ["journalctl", "--quiet", "--output=json", "--output-fields=MESSAGE,_HOSTNAME", files, match]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def test_a_node_of_the_site_uploads_its_journal_and_nobody_else_does(
    authority: Authority,  # noqa: F811
    tmp_path: Path,
    folder: Path,
) -> None:
    source = tmp_path / "worker1"
    source.mkdir()
    # a file has room for two of them
    journals.write(
        source / "system.journal",
        [
            {"MESSAGE": str(number), "_HOSTNAME": "worker1", "PENSTOCK_REQUEST": "r1", "MORE": noise}
            for number, noise in enumerate(secrets.token_hex(FILE_MIB << 18) for _ in range(3))
        ],
    )
    removed = authority.issue("worker2")
    authority.revoke(removed[0])
    known = {"agent_edge_log_store": str(folder), "agent_edge_log_nodes": ["storage1", "worker2"]}
    with store(folder, "storage1"), running_edge(authority, "127.0.0.1:1", tmp_path / "edge", **known) as edge:
        for stranger in (removed, make_authority(tmp_path / "others").issue("worker1")):
            refused = upload(edge, source, authority, *stranger)
            assert "SSL certificate error" in refused.communicate(timeout=UPLOAD_S)[1]
            assert refused.returncode != 0
        refused = upload(edge, source, authority, *authority.issue("worker3"))
        assert "403" in refused.communicate(timeout=UPLOAD_S)[1], "a certificate of the site, and no node of it"
        assert stored(folder, "PENSTOCK_REQUEST=r1") == []
        sends = upload(edge, source, authority, *authority.issue("storage1"))
        try:
            deadline = time.monotonic() + UPLOAD_S
            while len(found := stored(folder, "PENSTOCK_REQUEST=r1")) < 3:
                assert sends.poll() is None, sends.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            sends.kill()
            sends.communicate()
    assert [(entry["MESSAGE"], entry["_HOSTNAME"]) for entry in found] == [(each, "worker1") for each in "012"]
    # whatever it says of itself, it is kept as who has sent it, in files that do not grow without end
    files = list(folder.glob(senders.FILES))
    assert [file.parent.name for file in files] == ["storage1", "storage1"]
    assert max(file.stat().st_size for file in files) <= FILE_MIB << 20
    assert set(senders.names(folder).values()) == {"storage1"}


def test_a_node_goes_on_where_it_stopped_when_the_master_was_away(
    authority: Authority,  # noqa: F811
    tmp_path: Path,
    folder: Path,
) -> None:
    source, sender = tmp_path / "storage1", authority.issue("storage1")
    source.mkdir()
    known = {"agent_edge_log_store": str(folder), "agent_edge_log_nodes": ["storage1"]}
    with store(folder, "storage1"):
        for number, part in enumerate(("before", "while it was away", "after")):
            journals.write(
                source / f"system@{number}.journal",
                [
                    {"MESSAGE": f"{part} {line}", "PART": str(number)} | journals.at(10 * number + line)
                    for line in range(3)
                ],
            )
            if number == 1:
                # its unit starts it again and again until there is somebody
                refused = upload(Edge(), source, authority, *sender)
                refused.communicate(timeout=UPLOAD_S)
                assert refused.returncode != 0
                continue
            with running_edge(authority, "127.0.0.1:1", tmp_path / f"edge{number}", **known) as edge:
                sends = upload(edge, source, authority, *sender)
                deadline = time.monotonic() + UPLOAD_S
                while len(stored(folder, f"PART={number}")) < 3:
                    assert sends.poll() is None, sends.communicate()[1]
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                sends.terminate()
                sends.communicate(timeout=UPLOAD_S)
        found = [entry["MESSAGE"] for number in range(3) for entry in stored(folder, f"PART={number}")]
    # what it had sent and not been thanked for comes again
    parts = ("before", "while it was away", "after")
    assert list(dict.fromkeys(found)) == [f"{part} {line}" for part in parts for line in range(3)]
