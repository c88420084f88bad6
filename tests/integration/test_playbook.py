"""The runner with Ansible itself, on this machine and on a node that is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from appliance.site import playbook, settings
from appliance.site.alone import alone
from appliance.site.playbook import Counts, Event, Outcome
from common.errors import ConflictError, ProcessError

ROOT = Path(__file__).parents[2]
SECRET = "0f3c5e-not-for-logs"
PLAYBOOK = """\
- name: First
  hosts: things
  gather_facts: false
  any_errors_fatal: false
  tasks:
    - name: Write a file
      ansible.builtin.copy: {content: "text", dest: "{{ folder }}/file", mode: "0600"}
    - name: Use a secret
      ansible.builtin.shell: cat {{ folder }}/secret
      no_log: true
      changed_when: false
    - name: Publish
      ansible.builtin.debug: {var: wanted}
- name: Second
  hosts: things
  gather_facts: false
  tasks:
    - name: Fail where asked
      ansible.builtin.command: sh -c 'echo the reason >&2; exit 3'
      when: broken
- name: Empty
  hosts: others
  gather_facts: false
  tasks:
    - name: Never
      ansible.builtin.fail: {msg: never}
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the packed one, with one playbook."""
    root = tmp_path / "ansible"
    for name in ("playbooks", "roles", "inventory"):
        (root / name).mkdir(parents=True)
    (root / "playbooks" / "try.yml").write_text(PLAYBOOK)
    (root / "inventory" / "groups.yml").write_text("all: {children: {things: , others: }}\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setattr(settings, "ansible_root", lambda: root)
    return tmp_path


def run(tree: Path, *, broken: bool = False, check: bool = False, **hosts: dict[str, Any]) -> playbook.Result:
    local = {"here": {"ansible_connection": "local"}} | hosts
    inventory = {
        "all": {
            "vars": {"folder": str(tree), "broken": broken, "wanted": {"answer": 42}},
            "hosts": local,
            "children": {"things": {"hosts": {name: {} for name in local}}},
        }
    }
    heard: list[Event] = []
    result = playbook.run("try", inventory, state=tree / "state", listen=heard.append, publish=["wanted"], check=check)
    assert {event.phase for event in heard} <= {"First", "Second"}
    return result


def test_a_first_run_changes_a_second_does_not_and_no_secret_stays_in_the_state(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    assert run(tree).nodes == {"here": Counts(ok=3, changed=1, skipped=1)}
    second = run(tree)
    assert second.nodes == {"here": Counts(ok=3, changed=0, skipped=1)}
    assert set(second.phases) == {"First", "Second"} | ({"Empty"} & set(second.phases))
    assert second.published == {"here": {"wanted": {"answer": 42}}}
    second.require_success()
    # only its owner may read that
    state = tree / "state"
    assert state.stat().st_mode & 0o077 == 0
    found = [path for path in state.rglob("*") if path.is_file() and SECRET in path.read_text(errors="replace")]
    assert not found


def test_a_process_ends_by_signals_after_a_run_as_before(tree: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    run(tree)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_dry_run_changes_nothing(tree: Path) -> None:
    assert run(tree, check=True).nodes["here"].changed == 1
    assert not (tree / "file").exists()


def test_a_failure_names_node_phase_task_and_reason(tree: Path) -> None:
    with pytest.raises(ProcessError, match="here: Second: Fail where asked: non-zero return code: the reason"):
        run(tree, broken=True).require_success()


def test_a_node_that_is_not_there_is_named(tree: Path) -> None:
    absent = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
    result = run(tree, gone=absent)
    (failure,) = result.failures
    assert (failure.node, failure.task, failure.outcome) == ("gone", "Write a file", Outcome.UNREACHABLE)
    with pytest.raises(ProcessError, match=r"gone: First: Write a file: .*(refused|Broken pipe).*SSH"):
        result.require_success()
    assert result.nodes["here"].ok >= 1


def test_a_node_takes_up_its_changes_though_another_one_fails(tree: Path) -> None:
    (tree / "ansible" / "playbooks" / "try.yml").write_text(
        """\
- name: First
  hosts: things
  gather_facts: false
  tasks:
    - name: Change a file
      ansible.builtin.copy: {content: "text", dest: "{{ folder }}/{{ inventory_hostname }}", mode: "0600"}
      notify: Restart
    - name: Fail on one node
      ansible.builtin.command: "false"
      when: inventory_hostname == "there"
  handlers:
    - name: Restart
      ansible.builtin.copy: {content: "", dest: "{{ folder }}/{{ inventory_hostname }}.restarted", mode: "0600"}
"""
    )
    (failure,) = run(tree, there={"ansible_connection": "local"}).failures
    assert (failure.node, failure.task) == ("there", "Fail on one node")
    # the second run finds the file as it should be and restarts nothing
    assert (tree / "here.restarted").exists()


def test_a_node_that_hangs_is_given_up(tree: Path) -> None:
    """As the preflight does, which waits for nobody for ever."""
    (tree / "ansible" / "playbooks" / "try.yml").write_text(
        """\
- name: First
  hosts: things
  gather_facts: false
  any_errors_fatal: false
  timeout: 6
  tasks:
    - name: Answer
      ansible.builtin.debug: {msg: here}
      when: inventory_hostname == "here"
    - name: Hang
      ansible.builtin.command: sleep 60
      changed_when: false
      when: inventory_hostname == "there"
"""
    )
    result = run(tree, there={"ansible_connection": "local"})
    (failure,) = result.failures
    assert (failure.node, failure.task) == ("there", "Hang")
    assert "6 second" in failure.reason
    assert result.nodes["here"].ok == 1


def test_a_playbook_that_is_not_one_shows_ansibles_words(tree: Path) -> None:
    (tree / "ansible" / "playbooks" / "try.yml").write_text("- hosts: things\n  roles: [nowhere]\n")
    with pytest.raises(ProcessError, match="'nowhere' was not found"):
        run(tree).require_success()


DEPLOY = """\
import sys
from pathlib import Path
from appliance.site import playbook, settings
from appliance.site.alone import alone
root = Path(sys.argv[1])
settings.ansible_root = lambda: root / "ansible"
hosts = {"all": {"children": {"things": {"hosts": {"here": {"ansible_connection": "local"}}}}}}
with alone(root / "state") as held:
    playbook.run("try", hosts, state=root / "state", listen=lambda _: None, held=held)
"""
SLOW = """\
- name: First
  hosts: things
  gather_facts: false
  tasks:
    - name: Wait
      ansible.builtin.shell: |
        touch {folder}/begun
        until test -e {folder}/go; do sleep 0.1; done
        touch {folder}/ended
      loop: [1, 2]
    - name: Go on
      ansible.builtin.copy: {content: "", dest: "{folder}/went-on", mode: "0600"}
    - name: Go on and on
      ansible.builtin.command: sh -c 'touch {folder}/went-on-and-on; sleep 600'
"""


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def refusal(tree: Path) -> str:
    with pytest.raises(ConflictError) as caught, alone(tree / "state"):
        pass
    return caught.value.problems[0].reason


@pytest.fixture
def killed(tree: Path) -> Iterator[tuple[str, int]]:
    """A deploy that was killed in the middle of a task: what the next one is told, and the process that it names."""
    slow = SLOW.replace("{folder}", str(tree))
    (tree / "ansible" / "playbooks" / "try.yml").write_text(slow)
    with subprocess.Popen([sys.executable, "-c", DEPLOY, str(tree)], cwd=ROOT) as deploy:
        wait_for(tree / "begun")
        deploy.kill()
    said = refusal(tree)
    pid = int(said.split("(pid ")[1].split(",")[0])
    assert pid != deploy.pid
    yield said, pid
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def wait_for_lock(tree: Path) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with alone(tree / "state"):
                assert f"pid {os.getpid()}, started " in (tree / "state" / "lock").read_text()
                return
        except ConflictError:
            assert time.monotonic() < end, "the lock of a deploy that was killed is never free"
            time.sleep(0.1)


def test_ansible_ends_its_task_under_the_lock_of_a_deploy_that_was_killed_and_then_stops(
    tree: Path, killed: tuple[str, int]
) -> None:
    said, pid = killed
    (log,) = (tree / "state" / "runs").glob("*-try/ansible/stdout")
    assert said.startswith("a deploy or a backup of this site is still running")
    assert b"ansible-playbook" in Path("/proc", str(pid), "cmdline").read_bytes()
    assert f"its log is {log}," in said
    (tree / "go").touch()
    wait_for_lock(tree)
    assert (tree / "ended").exists()
    assert not (tree / "went-on-and-on").exists()


def test_the_line_that_the_refusal_names_ends_the_ansible_of_a_deploy_that_was_killed(
    tree: Path, killed: tuple[str, int]
) -> None:
    said, pid = killed
    assert f"`kill -- -{pid}` ends it at once" in said
    subprocess.run(["bash", "-c", f"kill -- -{pid}"], check=True)
    wait_for_lock(tree)
    assert not (tree / "ended").exists()
