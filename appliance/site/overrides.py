"""Overrides: variables of roles that a site sets by their own names, checked against what the roles say of them.

Only what the site file has no key for can be overridden: what follows from such a key is set by that alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path as File
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from appliance.site.model import Site
from common.errors import InputError
from common.places import Path
from common.yaml_document import YamlDocument

OF_TYPE = ("type", "elements", "choices", "options")
"""What of an option in `argument_specs` says which values it takes."""

Options = Mapping[str, Mapping[str, Any]]


def require(site: Site, document: YamlDocument, root: File) -> None:
    """Raise InputError that lists each override that no role takes, or not with such a value.

    `root` is the folder of roles and inventory.
    """
    known = options(root)
    problems = [
        document.problem((*path, name), *fault)
        for path, listed in _listed(site)
        for name, value in listed.items()
        if (fault := _fault(name, value, known))
    ]
    if problems:
        raise InputError.of(problems)


@cache
def options(root: File) -> Options:
    """Return what may be overridden, by the names of variables."""
    found: dict[str, Mapping[str, Any]] = {}
    for role in sorted(path for path in (root / "roles").iterdir() if path.is_dir()):
        spec = _read(role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})
        wired = _read(root / "inventory/group_vars/all" / f"{role.name}.yml") or {}
        found |= {name: option for name, option in spec.items() if name not in wired}
    return found


def _listed(site: Site) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for group, listed in site.overrides.items():
        yield ("overrides", group), listed
    for index, node in enumerate(site.nodes):
        yield ("nodes", index, "overrides"), node.overrides


def _fault(name: str, value: Any, known: Options) -> tuple[str, str] | None:
    """Return what is wrong with one override, and the hint."""
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "the README of each role lists its variables"
        return f"no role has a variable {name} that can be overridden", hint
    if _is_template(value):
        return "is a template", "write the value itself: what it would be filled in with is not checked"
    spec = {key: known[name][key] for key in OF_TYPE if key in known[name]}
    errors = ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages
    if errors:
        return " ".join(errors), f"give {_described(spec)}"
    return None


def _is_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_is_template(each) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return any(map(_is_template, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value)


def _described(spec: Mapping[str, Any]) -> str:
    if "choices" in spec:
        return f"one of {', '.join(map(str, spec['choices']))}"
    elements = f" of {spec['elements']}" if "elements" in spec else ""
    return f"a value of type {spec['type']}{elements}"


def _read(path: File) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
