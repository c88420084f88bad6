"""Storage of a site file, and folders that are opened: each mistake says line, field, reason and hint."""

from __future__ import annotations

import pytest

from tests.unit.appliance.site.example import EXAMPLE
from tests.unit.appliance.site.written import GOOD, check_mistake, problems


@pytest.mark.parametrize(
    ("old", "new", "where", "reason", "hint"),
    [
        (
            "roles: [worker],",
            "roles: [worker, storage],",
            "8: storage[1]",
            "2 nodes have the role storage",
            "with `node`",
        ),
        ("[storage]}", "[worker], agent_port: 1}", "8: storage[1]", "no node has the role storage", "role storage to"),
        (
            "path: /srv/archive",
            "path: /srv/archive, node: w1",
            "8: storage[1].node",
            "w1 is not a node with",
            "storage",
        ),
        ("name: archive", "name: shared", "7: storage[0].name", "two storages are named shared", "its own name"),
        ("path: /srv/archive", "path: /srv/../etc", "8: storage[1].path", "does not match", "correct"),
        (
            "path: /srv/archive",
            "path: /a, mount_path: /srv/shared/a",
            "8: storage[1].mount_path",
            "/srv/shared/a and /srv/shared of shared overlap",
            "choose another folder",
        ),
        ("kind: external", "kind: glusterfs", "7: storage[0]", "Input tag 'glusterfs' found using 'kind'", "correct"),
        (
            "name: north",
            "name: north\nsession_storage: other",
            "2: session_storage",
            "no storage is named other",
            "name one of `storage`",
        ),
        (
            "path: /srv/archive}",
            "path: /srv/archive, clients: []}\nsession_storage: archive",
            "9: session_storage",
            "workers do not mount archive",
            "add worker to its `clients`",
        ),
        (
            "name: north",
            "name: north\nsession_host_paths: [/mnt/penstock/sets, /mnt]",
            "2: session_host_paths[1]",
            "/mnt is the storage archive as a whole, or lies above it",
            "open a folder in it",
        ),
        (
            "name: north",
            "name: north\nsession_host_paths: [/mnt/data, /etc/ssl]",
            "2: session_host_paths[1]",
            "/etc/ssl belongs to the system",
            "name a folder such as /mnt/data",
        ),
    ],
)
def test_a_mistake_in_storage_names_line_field_reason_and_hint(
    old: str, new: str, where: str, reason: str, hint: str
) -> None:
    check_mistake(old, new, where, reason, hint)


def test_a_node_of_storage_runs_one_server() -> None:
    text = GOOD + "  - {kind: nfs, name: more, path: /srv/more, mount_path: /mnt/more, server: kernel}\n"
    assert problems(text) == [
        (
            "site.yml:9: storage[2].server",
            "s1 runs the server ganesha already",
            "give all storages of a node the same server",
        )
    ]


def test_a_storage_server_exports_each_folder_once() -> None:
    text = GOOD + "  - {kind: nfs, name: more, path: /srv/archive, mount_path: /mnt/more}\n"
    assert problems(text) == [
        ("site.yml:9: storage[2].path", "s1 exports /srv/archive already, as archive", "choose another folder")
    ]


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("path: /srv/archive", "path: /etc", "site.yml:8: storage[1].path"),
        ("path: /srv/archive", "path: /srv/archive, mount_path: /usr/lib", "site.yml:8: storage[1].mount_path"),
        ("path: /srv/shared", "path: /dev/shm", "site.yml:7: storage[0].path"),
    ],
)
def test_a_storage_is_no_folder_of_the_system(old: str, new: str, where: str) -> None:
    ((found, reason, hint),) = problems(GOOD.replace(old, new))
    assert found == where
    assert reason.endswith("belongs to the system")
    assert hint == "choose a folder such as /srv/shared"


@pytest.mark.parametrize("opened", ["/srv", "/srv/shared", "/srv/shared/team-a"])
def test_no_opened_folder_overlaps_the_volumes_of_all_projects(opened: str) -> None:
    ((where, reason, _),) = problems(f"{EXAMPLE.read_text()}\nsession_host_paths: [{opened}]\n")
    assert where.endswith("session_host_paths[0]")
    assert "overlap: who mounts it has those of every project" in reason
