"""The role that marks storages, run by Ansible for two nodes that are this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.site import playbook, settings
from appliance.site.playbook import Result

ROOT = Path(__file__).parents[2]
MARKER = ".penstock-storage"


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the packed one, with a playbook that runs the role alone."""
    root = tmp_path / "ansible"
    (root / "playbooks").mkdir(parents=True)
    (root / "roles").symlink_to(ROOT / "roles")
    (root / "inventory/group_vars/all").mkdir(parents=True)
    wiring = "inventory/group_vars/all/storage_marker.yml"
    (root / wiring).symlink_to(ROOT / wiring)
    play = {"name": "Mark", "hosts": "all", "gather_facts": False, "roles": ["storage_marker"]}
    (root / "playbooks" / "mark.yml").write_text(yaml.safe_dump([play]))
    (root / "inventory" / "groups.yml").write_text("all:\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    monkeypatch.setattr(settings, "ansible_root", lambda: root)
    return tmp_path


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A storage that is mounted in two places, as on two nodes; the third is an empty folder."""
    for name in ("one", "two", "empty"):
        (tmp_path / name).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "one"], check=True)
    subprocess.run(["mount", "--bind", tmp_path / "one", tmp_path / "two"], check=True)
    yield tmp_path
    for name in ("two", "one"):
        subprocess.run(["umount", tmp_path / name], check=True)


def mark(tree: Path, *roots: Path, mounted: bool = True) -> Result:
    hosts: dict[str, Any] = {
        f"node{index}": {
            "ansible_connection": "local",
            "node_storages": [{"name": "shared", "path": str(root), "mounted": mounted}],
        }
        for index, root in enumerate(roots)
    }
    inventory = {"all": {"hosts": hosts, "vars": {"site_state": str(tree / "state")}}}
    return playbook.run("mark", inventory, state=tree / "state", listen=lambda _: None)


def reasons(result: Result) -> str:
    return " ".join(event.reason for event in result.failures)


def test_a_storage_gets_one_id_for_all_nodes_and_keeps_it(tree: Path, shared: Path) -> None:
    mark(tree, shared / "one", shared / "two").require_success()
    written = (shared / "one" / MARKER).read_text().strip()
    assert (tree / "state/storages/shared").read_text().strip() == written
    mark(tree, shared / "two").require_success()
    assert (shared / "one" / MARKER).read_text().strip() == written


def test_what_is_not_mounted_is_neither_marked_nor_taken(tree: Path, shared: Path) -> None:
    assert "nothing is mounted there" in reasons(mark(tree, Path("/usr")))
    assert not Path("/usr", MARKER).exists()
    mark(tree, shared / "one").require_success()
    assert "the site knows it by" in reasons(mark(tree, shared / "empty", mounted=False))
    assert not (shared / "empty" / MARKER).exists()


def test_nodes_that_have_different_storages_are_told(tree: Path, shared: Path) -> None:
    (shared / "empty" / MARKER).write_text("another\n")
    assert "is another storage than the other nodes have" in reasons(
        mark(tree, shared / "one", shared / "empty", mounted=False)
    )
