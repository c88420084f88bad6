"""The check of the syntax of roles and playbooks, by Ansible itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lint_roles import check_syntax

TASK = "- name: Answer\n  ansible.builtin.ping:\n"
WRONG = "- name: Answer\n  ansible.builtin.no_such_module:\n"


@pytest.mark.parametrize(
    ("role", "playbook", "named"),
    [(TASK, TASK, ""), (WRONG, TASK, "roles/second/tasks/main.yml"), (TASK, WRONG, "playbooks/deep/last.yml")],
)
def test_what_ansible_cannot_read_is_refused_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], role: str, playbook: str, named: str
) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\nroles_path = roles\n")
    for name, tasks in (("first", TASK), ("second", role)):
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / name / "tasks/main.yml").write_text(tasks)
    (tmp_path / "playbooks/deep").mkdir(parents=True)
    (tmp_path / "playbooks/first.yml").write_text("- hosts: all\n  roles: [first]\n")
    (tmp_path / "playbooks/deep/last.yml").write_text(
        f"- hosts: all\n  tasks:\n    {playbook.replace(chr(10), chr(10) + '    ')}\n"
    )
    assert (check_syntax(tmp_path) == 0) is (named == "")
    assert named in capfd.readouterr().err
