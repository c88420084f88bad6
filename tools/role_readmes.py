"""README of each role, made of its argument_specs, defaults and tasks: `python -m tools.role_readmes`.

With `--check` nothing is written; the exit code is 1 where a README is not what the role is now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
ROLES = ROOT / "roles"
WIRING = ROOT / "inventory" / "group_vars" / "all"
STEPS = ("validate", "install", "configure", "main")
LONGEST = 60
"""Defaults whose text is longer are looked up in the role."""


def main(arguments: list[str]) -> int:
    """Write the READMEs that are not current, or with `--check` only name them; returns the exit code."""
    outdated = [role for role in roles() if readme(role) != _read(role / "README.md")]
    for role in outdated:
        print(f"{role.name}: {'not current, run `python -m tools.role_readmes`' if arguments else 'written'}")
        if not arguments:
            (role / "README.md").write_text(readme(role))
    return int(bool(arguments and outdated))


def roles() -> list[Path]:
    """Return the folders of all roles."""
    return sorted(path.parents[1] for path in ROLES.glob("*/meta/argument_specs.yml"))


def readme(role: Path) -> str:
    """Return the README of a role."""
    spec = _load(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    parts = [f"# {role.name}", f"{spec['short_description']}.", *spec["description"]]
    parts += [f"Runs in {' · '.join(plays)}." for plays in [list(_plays(role.name))] if plays]
    parts += ["## Tasks", "\n".join(_tasks(role))]
    handlers = _load(role / "handlers/main.yml") or []
    if handlers:
        parts += ["## Handlers", "\n".join(f"- {handler['name']}" for handler in handlers)]
    parts += ["## Variables", "\n".join(_variables(role, spec["options"]))]
    parts += [f"<!-- made by tools/role_readmes.py of roles/{role.name}/meta/argument_specs.yml -->"]
    return "\n\n".join(parts) + "\n"


def _plays(role: str) -> Iterator[str]:
    """Yield the plays that run a role, with the roles that go before it there."""
    for playbook in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in _load(playbook):
            names = play.get("roles", [])
            if role in names:
                before = ", ".join(f"`{name}`" for name in names[: names.index(role)])
                yield f"`playbooks/{playbook.name}` ({play['name']}{', after ' + before if before else ''})"


def _tasks(role: Path) -> Iterator[str]:
    """Yield the names of the tasks, step by step."""
    for step in STEPS:
        tasks = _load(role / f"tasks/{step}.yml") or []
        named = [task["name"] for task in tasks if "ansible.builtin.import_tasks" not in task]
        if named:
            yield f"- {step}: {'; '.join(named)}"
    tags = sorted({tag for path in role.glob("tasks/*.yml") for task in _load(path) for tag in task.get("tags", [])})
    if tags:
        yield f"- tags: {', '.join(tags)}"


def _variables(role: Path, options: Mapping[str, Any]) -> Iterator[str]:
    defaults, wired = _load(role / "defaults/main.yml"), _load(WIRING / f"{role.name}.yml") or {}
    yield f"Those of the site are set by `inventory/group_vars/all/{role.name}.yml`."
    yield ""
    yield "| variable | type | default | required | of the site | what |"
    yield "|---|---|---|---|---|---|"
    for name, option in options.items():
        yield _row(name, option, _default(defaults.get(name)), of_site=name in wired)
        for key, inner in option.get("options", {}).items():
            yield _row(f"{name}.{key}", inner, _default(inner.get("default")), of_site=False)


def _row(name: str, option: Mapping[str, Any], default: str, *, of_site: bool) -> str:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    choices = ", ".join(f"`{choice}`" for choice in option.get("choices", ()))
    what = option["description"] + (f" Choices: {choices}." if choices else "")
    required = option.get("required", False)
    cells = (f"`{name}`", kind, "" if required else default, _mark(required), _mark(of_site), what)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _mark(is_so: bool) -> str:
    return "yes" if is_so else ""


def _default(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= LONGEST else "see `defaults/main.yml`"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _load(path: Path) -> Any:
    return yaml.safe_load(_read(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
