"""Style and syntax of roles and playbooks: ansible-lint, but for its checks of syntax, which are one process here.

ansible-lint starts Ansible once for each role and each playbook, which takes four fifths of all its time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
FOLDERS = ("inventory", "molecule", "playbooks", "roles")
PLAYBOOKS = ("playbooks/**/*.yml", "molecule/*/converge.yml", "molecule/*/create.yml", "molecule/*/destroy.yml",
             "molecule/*/verify.yml")  # fmt: skip
ROLES = "- hosts: localhost\n  tasks:\n"
ROLE = "    - ansible.builtin.import_role: {{name: {role}}}\n"


def main() -> int:
    """Check syntax, then style; return the exit code."""
    return check_syntax(ROOT) or check_style("-q", *FOLDERS)


def check_syntax(root: Path) -> int:
    """Let Ansible read each role and playbook below a folder as it does before a run; return its exit code."""
    program = Path(sys.executable).with_name("ansible-playbook")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as roles:
        roles.write(ROLES + "".join(ROLE.format(role=folder.parent) for folder in sorted(root.glob("roles/*/tasks"))))
        roles.flush()
        playbooks = sorted(path for pattern in PLAYBOOKS for path in root.glob(pattern))
        words: Sequence[str | Path] = [program, "--syntax-check", roles.name, *playbooks]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return done.returncode


def check_style(*words: str) -> int:
    """Run ansible-lint without a check of syntax; return its exit code."""
    from ansiblelint import __main__ as program
    from ansiblelint import cli
    from ansiblelint.config import Options

    read = cli.get_config

    def quick(arguments: list[str]) -> Options:
        options = read(arguments)
        # there is no option for it; a version that knows no such thing checks everything twice
        options._skip_ansible_syntax_check = True
        return options

    with patch.object(cli, "get_config", quick):
        return int(program.main(["ansible-lint", "--offline", *words]))


if __name__ == "__main__":
    sys.exit(main())
