"""A dry run that tells differences, by Ansible itself: what would change, what would start anew, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.site import playbook, settings

ROOT = Path(__file__).parents[2]
SECRET = "0f3c5e-not-for-anyone"
TRY = """\
- name: First
  hosts: things
  gather_facts: false
  tasks:
    - name: Write small files
      small_files:
        files: {"{folder}/small": "two\\n", "{folder}/new": "fresh\\n", "{folder}/same": "same\\n"}
      notify: [Restart, Stop]
    - name: Write what few may read
      small_files: {files: {"{folder}/private": "{secret}\\n"}, mode: "0600"}
    - name: Write the key
      ansible.builtin.copy: {content: "{secret}\\n", dest: "{folder}/key", mode: "0600"}
      no_log: true
    - name: Write by a loop
      ansible.builtin.copy: {content: "{{ item }}\\n", dest: "{folder}/{{ item }}", mode: "0644"}
      loop: [a, b]
      notify: Tell
    - name: Write by a template
      ansible.builtin.template: {src: "{folder}/source.j2", dest: "{folder}/{{ item }}", mode: "0644"}
      loop: [small, fresh]
    - name: Never
      ansible.builtin.copy: {content: "", dest: "{folder}/never", mode: "0644"}
      when: false
    - name: Ask
      ansible.builtin.command: "true"
  handlers:
    - name: Restart
      ansible.builtin.systemd_service: {name: penstock-not-here.service, state: restarted}
      ignore_errors: "{{ ansible_check_mode }}"
    - name: Stop
      ansible.builtin.systemd_service: {name: penstock-not-here.service, state: stopped}
      when: false
    - name: Tell
      ansible.builtin.command: "true"
    - name: Not called
      ansible.builtin.command: "true"
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the packed one, with one playbook and our module of small files."""
    root = tmp_path / "ansible"
    (root / "playbooks").mkdir(parents=True)
    (root / "inventory").mkdir()
    (root / "roles").symlink_to(ROOT / "roles")
    (root / "playbooks" / "try.yml").write_text(TRY.replace("{folder}", str(tmp_path)).replace("{secret}", SECRET))
    (root / "inventory" / "groups.yml").write_text("all: {children: {things: }}\n")
    (root / "ansible.cfg").write_text((ROOT / "ansible.cfg").read_text())
    monkeypatch.setattr(settings, "ansible_root", lambda: root)
    (tmp_path / "source.j2").write_text("three\n")
    for name, text in {"small": "one\n", "same": "same\n", "private": "before\n", "key": "before\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600 if name in ("private", "key") else 0o644)
    return tmp_path


def test_a_plan_tells_differences_and_restarts_and_no_secret(tree: Path) -> None:
    (tree / "state").mkdir()
    (tree / "state" / "hosts.json").write_text("of the last deploy")
    inventory = {
        "all": {"vars": {"token": SECRET}, "children": {"things": {"hosts": {"here": {"ansible_connection": "local"}}}}}
    }
    result = playbook.run("try", inventory, state=tree / "state", listen=lambda _: None, check=True, diff=True)
    result.require_success()
    told = {each.task: each for each in result.foreseen["here"]}
    assert list(told) == [
        *("Write small files", "Write what few may read", "Write by a loop", "Write by a template"),
        *("Restart", "Tell"),
    ]
    assert {name for name, each in told.items() if each.handler} == {"Restart", "Tell"}
    small = str(tree / "small")
    assert told["Write small files"].difference.startswith(f"--- {small}\n+++ {small}\n@@ -1 +1 @@\n-one\n+two\n")
    assert told["Write small files"].difference.endswith("+fresh\n")
    assert [line for line in told["Write by a loop"].difference.splitlines() if line in ("+a", "+b")] == ["+a", "+b"]
    headers = [line for line in told["Write by a template"].difference.splitlines() if line[:3] in ("---", "+++")]
    assert headers == [f"--- {small}", f"+++ {small}", "--- source", "+++ source"]
    assert result.hidden("here") == 1
    assert told["Write what few may read"].difference == ""
    logs = [path.read_text(errors="replace") for path in (tree / "state").rglob("*") if path.is_file()]
    assert SECRET not in "".join(logs)
    assert (tree / "small").read_text() == "one\n"
    assert (tree / "state" / "hosts.json").read_text() == "of the last deploy"
