"""What the roles' own modules make of what they see on a node."""

from __future__ import annotations

import io
import subprocess
import time
import urllib.error
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from appliance.site import pki
from appliance.site.model import Site
from tests.role_modules import role_module

evidence = role_module("evidence/library/node_evidence.py")

findings = role_module("preflight/library/node_findings.py")

symptom = role_module("repair/library/symptom.py")

OPTIONS: dict[str, Any] = {
    "release": "bookworm",
    "machine": "x86_64",
    "address": "127.0.0.1",
    "disk_mib": 0,
    "controller_time": 0.0,
    "clock_s": 60,
    "external": [],
    "storages": [],
    "storage_ids": {},
}


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "is_own", lambda address: address == "127.0.0.1")


def named(name: str, **changes: object) -> dict[str, Any]:
    options = OPTIONS | {"controller_time": time.time()} | changes
    found: dict[str, Any] = next(finding for finding in findings.findings(options) if finding["name"] == name)
    return found


def test_tracking_of_a_node_that_follows_a_clock() -> None:
    line = "0A47080A,10.71.8.10,11,1764000000.1,0.000006714,-0.1,0.2,1.0,0.0,0.1,0.001,0.002,64.2,Normal"
    assert evidence.tracking(0, line) == {
        "reference": "10.71.8.10",
        "local": False,
        "stratum": 11,
        "offset_s": 0.000006714,
        "synchronised": True,
    }


def test_tracking_of_a_node_that_is_its_own_clock() -> None:
    line = "7F7F0101,,10,1764000000.1,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,Normal"
    assert evidence.tracking(0, line)["local"] is True


def test_tracking_without_a_clock_and_without_chrony() -> None:
    line = "00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised"
    assert evidence.tracking(0, line)["synchronised"] is False
    assert evidence.tracking(1, "506 Cannot talk to daemon") is None


def test_ports_beyond_the_loopback_address() -> None:
    text = "\n".join(
        f"LISTEN 0 128 {address} 0.0.0.0:*"
        for address in ("0.0.0.0:443", "127.0.0.1:5001", "[::]:22", "[::1]:25", "*:2049", "10.0.0.2:443")
    )
    assert evidence.listening(text) == [22, 443, 2049]


def test_docker_that_answers_and_docker_that_does_not() -> None:
    info = '{"ServerVersion": "20.10.24", "Driver": "overlay2", "DockerRootDir": "/var/lib/docker"}'
    assert evidence.docker(0, info) == {
        "version": "20.10.24",
        "driver": "overlay2",
        "root": "/var/lib/docker",
        "security": [],
    }
    assert evidence.docker(1, "Cannot connect to the Docker daemon") is None
    assert evidence.docker(0, "not json") is None
    client_alone = '{"ServerVersion": "", "ServerErrors": ["Cannot connect to the Docker daemon"]}'
    assert evidence.docker(0, client_alone) is None


def test_versions_of_packages_leave_out_those_that_are_not_installed() -> None:
    text = "chrony 4.3-2\ndpkg-query: no packages found matching docker.io\nnginx-light 1.22.1"
    assert evidence.table(text) == {"chrony": "4.3-2", "nginx-light": "1.22.1"}


def test_versions_of_penstock(tmp_path: Path) -> None:
    (tmp_path / "agent/lib/python3.11/site-packages/penstock-0.1.0.dist-info").mkdir(parents=True)
    assert evidence.penstock_versions(tmp_path) == {"agent": "0.1.0"}


def test_pip_asks_all_that_its_files_of_settings_name(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/pip.conf").write_text("[global]\nindex-url = https://reservoir:8443/pypi/simple/\n")
    own = tmp_path / "root/.config/pip"
    own.mkdir(parents=True)
    (own / "pip.conf").write_text("[install]\nextra-index-url =\n  https://one.example/\n  https://two.example/\n")
    assert evidence.pip_sources(tmp_path) == {
        "index-url": ["https://reservoir:8443/pypi/simple/"],
        "extra-index-url": ["https://one.example/", "https://two.example/"],
        "find-links": [],
    }


URIS = """\
'https://reservoir:8443/apt/dists/bookworm/InRelease' reservoir:8443_apt_dists_bookworm_InRelease 0
'https://reservoir:8443/apt/dists/bookworm/main/binary-amd64/Packages.xz' reservoir:8443_apt_main_Packages 0
'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example_debian_dists_bookworm_InRelease 0
'http://flat.example/debs/Packages' flat.example_debs_Packages 0
"""


def test_apt_says_from_where_it_would_fetch() -> None:
    assert evidence.package_sources(0, URIS) == [
        "http://flat.example/debs/Packages/",
        "http://mirror.example/debian/",
        "https://reservoir:8443/apt/",
    ]
    with pytest.raises(ValueError, match="malformed"):
        evidence.package_sources(100, "E: malformed entry 1 in list file")


def test_apt_says_by_whom_it_would_fetch() -> None:
    text = 'Acquire "";\nAcquire::http "";\nAcquire::http::Proxy "http://proxy.example:3128";\nAcquire::Retries "3";\n'
    assert evidence.package_proxies(text) == ["http://proxy.example:3128"]
    assert evidence.package_proxies('Acquire::https::Proxy "";\n') == []


def test_graphics_cards_of_nvidia_on_the_pci_bus(tmp_path: Path) -> None:
    cards = {"1": ("0x10de", "0x030200"), "2": ("0x10de", "0x040300"), "3": ("0x1a03", "0x030000")}
    for name, (vendor, kind) in cards.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert evidence.pci_gpus(tmp_path) == 1
    assert evidence.pci_gpus(tmp_path / "missing") == 0


def test_a_part_that_breaks_takes_nothing_else_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evidence, "parts", lambda *_: {"time": broken, "kernel": lambda: "6.1"})
    assert evidence.gather({}, by_openssl) == {"kernel": "6.1", "lost": {"time": "[Errno 28] No space left on device"}}


@pytest.mark.parametrize(
    ("path", "options"),
    [("/mnt/penstock", ["rw", "nosuid", "nodev"]), ("/mnt", ["ro"]), ("/mnt/other", None)],
)
def test_options_of_a_mount(path: str, options: list[str] | None) -> None:
    table = "a /mnt rw 0 0\na /mnt ext4 ro 0 0\nstorage1:/srv /mnt/penstock nfs4 rw,nosuid,nodev 0 0\n"
    assert evidence.mounted(path, table) == options


COUNTS = "-A PENSTOCK-EDGE -p tcp -m connlimit --connlimit-above 1024 --connlimit-mask 32 -j REJECT"


@pytest.mark.parametrize(
    ("rules", "leads", "ok", "detail"),
    [
        ((0, f"-N PENSTOCK-EDGE\n{COUNTS}"), 0, True, "1024 connections of one address"),
        ((0, f"-N PENSTOCK-EDGE\n{COUNTS}"), 1, False, "no packet comes to its rule"),
        ((0, "-N PENSTOCK-EDGE"), 0, False, "its rule is not there"),
        ((0, "-N PENSTOCK-EDGE\n-A PENSTOCK-EDGE -p tcp -j RETURN"), 0, True, "the kernel cannot count connections"),
        (
            (1, "iptables: No chain/target/match by that name."),
            1,
            False,
            "iptables: No chain/target/match by that name.",
        ),
    ],
)
def test_a_limit_of_connections_is_in_force(rules: tuple[int, str], leads: int, ok: bool, detail: str) -> None:
    def run(*words: str) -> tuple[int, str]:
        return (leads, "") if "--check" in words else rules

    found = evidence.limit("PENSTOCK-EDGE", run)
    assert (found["ok"], found["detail"].startswith(detail)) == (ok, True)


def test_an_export_that_cannot_be_listed_says_why() -> None:
    assert evidence.export("/srv", "10.0.0.2", lambda *_: (0, "")) == {"ok": True, "detail": ""}
    assert evidence.export("/srv", "10.0.0.2", lambda *_: (1, "refused")) == {"ok": False, "detail": "refused"}


@pytest.mark.parametrize(
    ("installed", "published", "loader", "detail"),
    [
        (b"same", b"same", (0, "libc.so.6 => /lib/libc.so.6"), ""),
        (None, b"same", (0, ""), "there is no {folder}/installed.so"),
        (b"same", None, (0, ""), "there is no {folder}/published.so"),
        (b"other", b"same", (0, ""), "{folder}/installed.so is not the one from the reservoir"),
        (b"same", b"same", (1, "not a dynamic executable"), "not a dynamic executable"),
        (b"same", b"same", (0, "libold.so.1 => not found"), "libold.so.1 => not found"),
    ],
)
def test_the_library_of_gpu_shares_is_the_published_one_and_loads(
    tmp_path: Path, installed: bytes | None, published: bytes | None, loader: tuple[int, str], detail: str
) -> None:
    paths = tmp_path / "installed.so", tmp_path / "published.so"
    for path, content in zip(paths, (installed, published), strict=True):
        if content is not None:
            path.write_bytes(content)
    found = evidence.library(*paths, lambda *_: loader)
    assert found == {"ok": not detail, "detail": detail.format(folder=tmp_path)}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("system", {"release": "jammy"}),
        ("system", {"machine": "aarch64"}),
        ("address", {"address": "192.0.2.1"}),
        ("disk", {"disk_mib": 10**12}),
        ("clock", {"controller_time": 0.0}),
        ("external /srv/missing", {"external": ["/srv/missing"]}),
    ],
)
def test_a_finding_names_reason_and_hint(name: str, change: dict[str, Any]) -> None:
    found = named(name, **change)
    assert found["ok"] is False
    assert found["reason"]
    assert found["hint"]


@pytest.mark.parametrize("name", ["address", "disk", "clock"])
def test_a_check_that_holds_gives_what_was_seen_and_no_reason(name: str) -> None:
    found = named(name)
    assert found.pop("seen")
    assert found == {"name": name, "ok": True, "reason": "", "hint": ""}


def by_openssl(*words: str) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip()


def test_a_certificate_counts_until_the_node_knows_that_it_is_revoked(tmp_path: Path) -> None:
    master = {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]}
    storage = {"name": "s1", "address": "10.0.0.3", "roles": ["storage"]}
    pki.issue(Site.model_validate({"name": "lab", "nodes": [master, storage]}), tmp_path)
    own = tmp_path / "node.crt"
    own.write_bytes((tmp_path / "nodes/s1/node.crt").read_bytes())
    paths = str(own), str(tmp_path / "ca.crt"), str(tmp_path / "ca.crl")
    found = evidence.certificate(*paths, by_openssl)
    assert (found["name"], found["ok"], found["detail"]) == ("s1", True, "")
    left = (datetime.fromtimestamp(found["until"], UTC) - datetime.now(UTC)).days
    assert left == pki.NODE_DAYS - 1
    assert evidence.until(paths[1], by_openssl) > found["until"]
    pki.issue(Site.model_validate({"name": "lab", "nodes": [master]}), tmp_path)
    after = evidence.certificate(*paths, by_openssl)
    assert (after["ok"], "certificate revoked" in after["detail"]) == (False, True)
    assert after["crl"] != found["crl"]


def test_a_node_without_a_certificate_says_so(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("node.crt", "ca.crt", "ca.crl")]
    found = evidence.certificate(*paths, by_openssl)
    assert (found["name"], found["until"], found["ok"], found["crl"]) == ("", None, False, "")


def test_a_storage_of_a_deployed_site_is_looked_for_by_its_marker(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"storages": [{"name": "shared", "path": str(tmp_path)}]}
    options = OPTIONS | {"controller_time": time.time()} | asked
    assert not [each for each in findings.findings(options) if each["name"].startswith("storage")], "nothing is known"
    asked["storage_ids"] = {"shared": "one", "other": "two"}
    assert "is not shared" in named("storage shared", **asked)["reason"]
    (tmp_path / ".penstock-storage").write_text("two\n")
    assert "is another storage than shared" in named("storage shared", **asked)["reason"]
    (tmp_path / ".penstock-storage").write_text("one\n")
    assert named("storage shared", **asked)["ok"]


def test_a_storage_tells_its_id_and_one_that_hangs_does_not_answer(tmp_path: Path) -> None:
    def run(*command: str) -> tuple[int, str]:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.returncode, found.stdout.strip()

    assert evidence.storage(tmp_path, "one", run) == {"ok": False, "detail": f"it is not mounted at {tmp_path}"}
    (tmp_path / ".penstock-storage").write_text("one\n")
    assert evidence.storage(tmp_path, "one", run)["ok"]
    assert "and not two" in evidence.storage(tmp_path, "two", run)["detail"]
    assert not evidence.storage(tmp_path, "", run)["ok"]
    assert "does not answer" in evidence.storage(tmp_path, "one", lambda *_: (137, ""))["detail"]


@pytest.mark.parametrize(
    ("writable", "waiting", "ok", "said"),
    [
        (0, (0, "0"), True, "/log can be written by penstock; 0 lines wait for longer than a minute"),
        (0, (0, "3"), False, "/log can be written by penstock; 3 lines wait for longer than a minute"),
        (1, (0, "0"), False, "/log cannot be written by penstock; 0 lines wait for longer than a minute"),
        (0, (2, "no relation"), False, "/log can be written by penstock; no relation"),
    ],
)
def test_an_audit_log_can_be_written_and_nothing_waits_for_it(
    writable: int, waiting: tuple[int, str], ok: bool, said: str
) -> None:
    def run(*command: str) -> tuple[int, str]:
        return waiting if "psql" in command else (writable, "")

    assert evidence.audit("/log", "penstock", run) == {"ok": ok, "detail": said}


def test_what_the_control_api_says_is_the_matter_is_told() -> None:
    def refused(body: bytes) -> str:
        error = urllib.error.HTTPError("https://m1/health", 503, "Service Unavailable", Message(), io.BytesIO(body))
        told: str = evidence.problem(error)
        return told

    assert refused(b'{"detail": "the database has no room"}') == "the database has no room"
    for other in (b"<html>", b"[]", b"{}"):
        assert refused(other) == "HTTP Error 503: Service Unavailable"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "database: connection to server failed: No such file\n\tIs the server running locally?. Hint: start it\n",
            "database: connection to server failed: No such file",
        ),
        ("Traceback (most recent call last):\n  File x, line 1\nOSError: no room\n\nDuring", "OSError: no room"),
        (" \n", "code 1"),
        ("", "code 1"),
    ],
)
def test_why_a_command_failed_is_one_line(said: str, cause: str) -> None:
    options = {"units": [], "answers": {}, "listens": {}, "nodes_command": ["list"], "ready": ""}
    looked = symptom.look(options | {"lists": {"images": {"command": ["x"], "has": []}}}, lambda _: (1, said))
    assert looked == [f"images: {cause}", f"nodes: {cause}"]
