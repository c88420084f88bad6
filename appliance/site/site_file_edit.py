"""Changes of the text of a site file that leave all else as people wrote it: a node more, a node less. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from common.errors import InputError
from common.yaml_document import parse

BY_HAND = "write it into the file by hand, then run `penstock site deploy`"


def with_node(text: str, source: str, node: Mapping[str, Any]) -> str:
    """Return the text with one node more, behind the others; `source` is the name of the file that errors show.

    Raises InputError where its nodes do not stand as a list with a line for each key.
    """
    nodes = _nodes(text, source)
    last = nodes.value[-1]
    lines = text.splitlines(keepends=True)
    end = _last_line(last)
    if not lines[end].endswith("\n"):
        lines[end] += "\n"
    indent = " " * nodes.start_mark.column
    dumped = yaml.safe_dump([dict(node)], sort_keys=False, default_flow_style=None, width=1000).splitlines()
    lines[end + 1 : end + 1] = [f"{indent}{line}\n" for line in dumped]
    return _agreed("".join(lines), source, [*_data(text, source), dict(node)])


def without_node(text: str, source: str, name: str) -> str:
    """Return the text without the node of a name; what stands above it as a comment stays.

    Raises InputError where there is none, or its nodes do not stand as a list with a line for each key.
    """
    data = _data(text, source)
    names = [node["name"] for node in data]
    if name not in names:
        known = ", ".join(names)
        raise InputError(f"the site has no node {name!r}", where=source, hint=f"name one of {known}")
    node = _nodes(text, source).value[names.index(name)]
    lines = text.splitlines(keepends=True)
    first = node.start_mark.line
    while not lines[first].lstrip().startswith("-"):
        first -= 1
    del lines[first : _last_line(node) + 1]
    return _agreed("".join(lines), source, [each for each in data if each["name"] != name])


def with_address(text: str, source: str, name: str, address: str) -> str:
    """Return the text with another address of a node; raises InputError where it has none of that name."""
    data = _data(text, source)
    names = [node["name"] for node in data]
    if name not in names:
        known = ", ".join(names)
        raise InputError(f"the site has no node {name!r}", where=source, hint=f"name one of {known}")
    node = _listed(text).value[names.index(name)]
    value = next(value for key, value in node.value if key.value == "address")
    changed = text[: value.start_mark.index] + address + text[value.end_mark.index :]
    return _agreed(changed, source, [each | ({"address": address} if each["name"] == name else {}) for each in data])


def with_gpus(text: str, source: str, expected: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text with `gpus` of nodes that say nothing of them, by their names.

    Raises InputError where that would change more than these nodes.
    """
    data, changed = _data(text, source), text
    listed = {node["name"]: entry for node, entry in zip(data, _listed(text).value, strict=True)}
    # from the end on, so that what stands above keeps its place
    for name in sorted(expected, key=lambda name: listed[name].start_mark.index, reverse=True):
        changed = _with_key(changed, listed[name], "gpus", expected[name])
    wanted = [node | ({"gpus": dict(expected[node["name"]])} if node["name"] in expected else {}) for node in data]
    return _agreed(changed, source, wanted)


def _with_key(text: str, node: yaml.MappingNode, key: str, value: Mapping[str, Any]) -> str:
    dumped = yaml.safe_dump({key: dict(value)}, default_flow_style=None, sort_keys=False, width=1000).rstrip("\n")
    if node.flow_style:
        at = node.end_mark.index - 1
        return f"{text[:at].rstrip()}, {dumped}{text[at:]}"
    lines = text.splitlines(keepends=True)
    end = _last_line(node)
    lines[end] = lines[end].rstrip("\n") + "\n"
    lines.insert(end + 1, f"{' ' * node.start_mark.column}{dumped}\n")
    return "".join(lines)


def _data(text: str, source: str) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = parse(text, source).data["nodes"]
    return nodes


def _nodes(text: str, source: str) -> yaml.SequenceNode:
    nodes = _listed(text)
    rows = [item.start_mark.line for item in nodes.value]
    if nodes.flow_style or len(set(rows)) < len(rows):
        raise InputError("its nodes stand in brackets, not on lines of their own", where=source, hint=BY_HAND)
    return nodes


def _listed(text: str) -> yaml.SequenceNode:
    root: Any = yaml.compose(text, yaml.SafeLoader)
    found: yaml.SequenceNode = next(value for key, value in root.value if key.value == "nodes")
    return found


def _last_line(node: yaml.Node) -> int:
    """Return the last line of a node, without the comments and empty lines behind it, counted from 0."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        end: int = node.end_mark.line
        return end - 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end
    below = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
    return max(_last_line(part) for part in below)


def _agreed(text: str, source: str, nodes: list[dict[str, Any]]) -> str:
    """Return a changed text, when it says what it should, and nothing else."""
    if _data(text, source) != nodes:
        raise InputError("it cannot be changed without a change of other parts", where=source, hint=BY_HAND)
    return text
