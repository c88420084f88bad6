"""The rules of roles and playbooks, as tests; what came up twice in a review belongs here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.tables import metrics
from api.tables.base import Base
from reservoir.lock.file import read_manifest
from tools import role_readmes

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
SHORT = {
    "attachment",
    "database_backup",
    "departure",
    "detachment",
    "evidence",
    "fabric",
    "hardening",
    "health",
    "interfaces",
    "kept_files",
    "preflight",
    "repair",
    "restarts",
    "uninstall",
}
"""Roles that have nothing to install or configure: they look, keep what they see, or change what others run."""

SERVICES = [role for role in ROLES if role.name not in SHORT]
PLAYBOOKS = sorted((ROOT / "playbooks").rglob("*.yml"))
MANIFEST = read_manifest(ROOT / "manifest.yml")
RELEASES = {target.release for target in MANIFEST.targets}
INVENTORY = set(re.findall(r'"((?:node|site)_\w+)"', (ROOT / "appliance/site/inventory.py").read_text()))
GROUPS: dict[str, Any] = yaml.safe_load((ROOT / "inventory/groups.yml").read_text())["all"]["children"]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def tasks(role: Path) -> list[dict[str, Any]]:
    paths = [path for kind in ("tasks", "handlers") for path in sorted(role.glob(f"{kind}/*.yml"))]
    return [task for path in paths for task in flat(load(path))]


def flat(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks with those inside blocks instead of the blocks."""
    blocks = ("block", "rescue", "always")
    return [
        task
        for each in listed
        for task in ([each] if "block" not in each else flat([t for kind in blocks for t in each.get(kind, [])]))
    ]


def names(role: Path, release: str) -> set[str]:
    """Debian packages that a role's defaults name for a release: a list, or lists by release or by kind."""
    packages = load(role / "defaults/main.yml").get(f"{role.name}_packages", [])
    kinds = packages if isinstance(packages, dict) else {"": packages}
    return {name for kind, listed in kinds.items() if kind not in RELEASES - {release} for name in listed}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_has_defaults_and_typed_arguments(role: Path) -> None:
    options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(load(role / "defaults/main.yml")) == set(options), "defaults and argument_specs name the same variables"
    assert all(option.get("type") and option.get("description") for option in options.values())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_says_what_it_does_and_what_each_variable_is(role: Path) -> None:
    spec = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    inner = [key for option in spec["options"].values() for key in option.get("options", {}).values()]
    told = [*spec["description"], *(option["description"] for option in (*spec["options"].values(), *inner))]
    assert all(text.endswith(".") for text in told)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_readme_of_a_role_is_what_the_role_is_now(role: Path) -> None:
    assert (role / "README.md").read_text() == role_readmes.readme(role), "run `python -m tools.role_readmes`"


@pytest.mark.parametrize("role", SERVICES, ids=lambda role: role.name)
def test_every_role_has_the_same_few_task_files(role: Path) -> None:
    assert {path.name for path in (role / "tasks").iterdir()} == {
        "main.yml",
        "validate.yml",
        "install.yml",
        "configure.yml",
    }


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_reads_its_own_variables_only(role: Path) -> None:
    owners = [*(other.name for other in ROLES), "site", "node"]
    # a module of theirs, or a role as a whole
    modules = {path.stem for other in ROLES for path in other.glob("library/*.py")} | {other.name for other in ROLES}
    for path in [*role.glob("tasks/*.yml"), *role.glob("handlers/*.yml"), *role.glob("templates/**/*.j2")]:
        text = path.read_text()
        # what a dollar stands before is a variable of nginx or of a shell
        words = set(re.findall(r"(?<![\w./$-])[a-z][a-z0-9]*_[a-z0-9_]+", text)) - modules
        foreign = {
            word for word in words if word.startswith(tuple(f"{owner}_" for owner in owners if owner != role.name))
        }
        assert {word for word in foreign if not word.startswith(f"{role.name}_")} == set(), path.relative_to(ROOT)
        assert not re.search(r"\bgroups\[|\bgroup_names\b|\bhostvars\b", text), path.relative_to(ROOT)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_variables_bear_the_name_of_their_role(role: Path) -> None:
    files = [role / "defaults/main.yml", *role.glob("vars/*.yml")]
    variables = [name for path in files for name in load(path)]
    assert all(name.startswith(f"{role.name}_") for name in variables)
    registered = [task["register"] for task in tasks(role) if "register" in task]
    assert all(name.startswith(f"{role.name}_") for name in registered)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_templates_mirror_the_path_of_their_target(role: Path) -> None:
    for template in role.glob("templates/**/*.j2"):
        first = template.relative_to(role / "templates").parts[0]
        assert first in {"etc", "usr", "var"}, f"{template} stands where no file of a node does"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_role_hides_errors_or_needs_a_shell(role: Path) -> None:
    for task in tasks(role):
        # in a dry run alone, where what a handler starts is not there yet
        assert task.get("ignore_errors", "{{ ansible_check_mode }}") == "{{ ansible_check_mode }}", task["name"]
        assert not {"shell", "raw", "ansible.builtin.shell", "ansible.builtin.raw"} & set(task), task["name"]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_roles_use_the_modules_that_ansible_itself_brings(role: Path) -> None:
    shared = {path.stem for path in (ROOT / "roles/restarts/library").glob("*.py")}  # as `ansible.cfg` says
    own = {path.stem for path in role.glob("library/*.py")} | shared
    for task in tasks(role):
        modules = [key for key in task if "." in key or key in own]
        assert len(modules) == 1, task
        assert modules[0] in own or modules[0].startswith("ansible.builtin."), modules[0]


@pytest.mark.parametrize("release", sorted(RELEASES))
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_bundle_contains_every_package_that_a_role_installs(role: Path, release: str) -> None:
    manifests = (MANIFEST, *(read_manifest(ROOT / f"{name}.yml") for name in ("monitoring", "drivers", "slurm")))
    groups = [each.debian_groups(target) for each in manifests for target in each.targets if target.release == release]
    bundled = {package for by_name in groups for group in by_name.values() for package in group.packages}
    assert names(role, release) <= bundled


def written(role: Path) -> set[str]:
    """Paths by name that a role writes or removes, but for what bears Penstock's name."""
    found = set()
    for task in tasks(role):
        for module in ("copy", "template", "blockinfile", "file"):
            asked = task.get(f"ansible.builtin.{module}", {})
            if module == "file" and asked.get("state") == "directory":
                continue
            path = str(asked.get("dest") or asked.get("path") or "")
            path += Path(asked["src"]).name if path.endswith("/") and "src" in asked else ""
            items = task["loop"] if isinstance(task.get("loop"), list) else ["{{ item }}"]
            found |= {path.replace("{{ item }}", str(item)) for item in items}
        files = task.get("small_files", {}).get("files")
        found |= set(files) if isinstance(files, dict) else set()
    return {path for path in found if path.startswith("/") and "penstock" not in path and "{{" not in path}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_what_stood_where_a_role_writes_is_kept(role: Path) -> None:
    kept = (ROOT / "inventory/group_vars/all/kept_files.yml").read_text()
    assert {path for path in written(role) if f"'{path}'" not in kept} == set()


def test_settings_of_the_api_are_for_root_alone() -> None:
    modes = {
        path: task["small_files"].get("mode", "0644")
        for task in tasks(ROOT / "roles/control_api")
        for path in task.get("small_files", {}).get("files", ())
    }
    assert modes["/etc/penstock/api.env"] == "0600", "addresses of webhooks may carry a token"


def test_group_and_role_and_variables_share_one_name() -> None:
    roles = {role.name for role in ROLES}
    wired = {path.stem for path in (ROOT / "inventory/group_vars/all").glob("*.yml")}
    assert set(GROUPS) == roles
    assert wired == roles


def test_wiring_sets_nothing_that_the_role_does_not_know() -> None:
    for role in ROLES:
        wired = set(load(ROOT / f"inventory/group_vars/all/{role.name}.yml"))
        assert wired <= set(load(role / "defaults/main.yml")), role.name


def test_what_wiring_tells_other_roles_is_what_the_role_takes_by_itself() -> None:
    """Values without an expression: they stand in the wiring because other roles' wiring reads them, too."""
    for role in ROLES:
        defaults, wired = load(role / "defaults/main.yml"), load(ROOT / f"inventory/group_vars/all/{role.name}.yml")
        plain = {name: value for name, value in wired.items() if isinstance(value, str) and "{{" not in value}
        assert plain.items() <= defaults.items(), role.name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "molecule").glob("*/*.yml")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_molecule_reads_only_variables_that_the_inventory_or_a_role_has(path: Path) -> None:
    text = path.read_text()
    read = set(re.findall(r"(?<![\w./-])((?:node|site)_\w+)", text))
    assert {name for name in read if not name.startswith(tuple(role.name for role in ROLES))} <= INVENTORY
    registered = set(re.findall(r"register: (\w+)", text)) | {"evidence_result", "evidence_running"}
    for role in ROLES:
        known = set(load(role / "defaults/main.yml")) | {
            name for file in role.glob("vars/*.yml") for name in load(file)
        }
        read = set(re.findall(rf"(?<![\w./-])({role.name}_\w+)", text))
        assert read <= known | registered, role.name


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.name)
def test_playbooks_hold_roles_and_no_tasks(playbook: Path) -> None:
    for play in load(playbook):
        assert not {"tasks", "pre_tasks", "post_tasks", "handlers", "vars"} & set(play), play["name"]
        assert "import_playbook" in play or {role_name(role) for role in play["roles"]} <= set(GROUPS)


def role_name(role: str | dict[str, Any]) -> str:
    """The role of a play, which may come with variables: a ladder is one."""
    return role if isinstance(role, str) else str(role["role"])


def test_the_site_installs_every_service_role() -> None:
    plays = [play for playbook in PLAYBOOKS for play in load(playbook) if "roles" in play]
    installed = {role_name(role) for play in plays for role in play["roles"]}
    assert installed == {role.name for role in ROLES}


def test_what_the_kernel_counts_for_a_whole_node_is_more_than_one_container_can_take() -> None:
    text = (ROOT / "roles/container_engine/files/etc/sysctl.d/60-penstock.conf").read_text()
    lines = [line.split(" = ") for line in text.splitlines() if line and not line.startswith("#")]
    limits = {name: int(value) for name, value in lines}
    assert all(name.startswith("-") for name in limits), "a node that is a container itself cannot set them"
    addresses_of_a_bridge = 1 << 16
    for version in ("ipv4", "ipv6"):
        assert limits[f"-net.{version}.neigh.default.gc_thresh3"] > addresses_of_a_bridge
    assert limits["-fs.inotify.max_user_instances"] >= 65536
    assert not limits["-fs.pipe-user-pages-soft"], "without a limit by user"


def test_no_list_has_another_order_in_each_run() -> None:
    """Ansible makes sets of what these filters take: a file that is written by them would change with every deploy."""
    unordered = re.compile(r"\|\s*(?:union|intersect|difference|symmetric_difference)\b(?!.*\|\s*sort)")
    folders = (ROOT / name for name in ("inventory", "playbooks", "roles"))
    texts = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".yml", ".j2")]
    assert len(texts) > 100
    assert [
        f"{path}: {line}" for path in texts for line in path.read_text().splitlines() if unordered.search(line)
    ] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_plan_shows_what_only_few_may_read(role: Path) -> None:
    """Those of `small_files` are not shown by the module itself."""
    for task in tasks(role):
        modes = [asked["mode"] for name, asked in task.items() if name != "small_files" and has_content(asked)]
        if any(not int(mode, 8) & 0o004 for mode in modes):
            assert task.get("no_log") or task.get("diff") is False, task["name"]


def has_content(asked: Any) -> bool:
    """Whether the arguments of a module say what stands in a file that has a mode."""
    return isinstance(asked, dict) and "mode" in asked and bool({"content", "src", "block", "line"} & asked.keys())


def test_a_dry_run_passes_over_handlers_whose_unit_is_not_there_yet() -> None:
    """A plan tells a handler that was called by its failure, too; a condition would hide which of its own hold."""
    for role in ROLES:
        for path in role.glob("handlers/*.yml"):
            for task in load(path):
                assert "ansible_check_mode" not in str(task.get("when", "")), f"{path}: {task['name']}"
                named = str(task.get("ansible.builtin.systemd_service", {}).get("name", ""))
                if named.startswith("penstock-"):
                    assert task.get("ignore_errors") == "{{ ansible_check_mode }}", f"{path}: {task['name']}"


def test_a_reboot_does_not_wait_for_the_upload_to_a_master_that_is_silent() -> None:
    """It does not hear that it is to end while it waits for an answer, and systemd would give it 90 seconds."""
    unit = ROOT / "roles/logs/templates/etc/systemd/system/penstock-log-upload.service.j2"
    (limit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(limit) <= 10


def test_exactly_the_tables_of_samples_are_left_out_of_dumps() -> None:
    samples = {each.__tablename__ for each in Base.__subclasses__() if each.__module__ == metrics.__name__}
    assert set(load(ROOT / "roles/database_backup/defaults/main.yml")["database_backup_left_out"]) == samples
