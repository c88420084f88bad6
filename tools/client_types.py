"""Types of the typed client, written from the control API's OpenAPI document: `python -m tools.client_types`.

Three modules come of it in `appliance/client/`: `words.py` for what has a few values, `requests.py` for bodies that are
sent, `views.py` for answers. A unit test holds them against the document in its own way.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from api.database import Database
from api.endpoints.access import PREFIX
from api.endpoints.app import create_app
from api.settings import Settings
from tests.fakes.engine import FakeEngine

FOLDER = Path(__file__).parents[1] / "appliance" / "client"
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEADS = {
    "words": "Words of the API that have a few values.",
    "requests": "Bodies that the API takes; times are ISO 8601 with a zone.",
    "views": "Answers of the API; times are ISO 8601.",
}


def main() -> None:
    """Write the modules, formatted."""
    types = _Types(document())
    for module in HEADS:
        (FOLDER / f"{module}.py").write_text(types.text(module))
    paths = [FOLDER / f"{module}.py" for module in HEADS]
    # what is too long is no mistake before it has been formatted
    for command in (["format", "--quiet"], ["check", "--fix", "--quiet"], ["format", "--quiet"]):
        subprocess.run([Path(sys.executable).with_name("ruff"), *command, *paths], check=True)


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    url = "postgresql+psycopg:///unused"
    return create_app(Settings(database_url=url), Database(url), FakeEngine(), reconcile=False).openapi()


class _Types:
    """The schemas that the operations for clients need, each with its name and module in the client."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.schemas: dict[str, Any] = described["components"]["schemas"]
        operations = [
            operation
            for path, methods in described["paths"].items()
            if path.startswith(PREFIX)
            for operation in methods.values()
        ]
        sent = self._reached([[one.get("requestBody"), one.get("parameters")] for one in operations])
        answered = self._reached(
            [answer for one in operations for status, answer in one["responses"].items() if status.startswith("2")]
        )
        self.modules: dict[str, str] = {}
        for key in sorted(sent | answered):
            kind = "views" if key in answered else "requests"
            self.modules[key] = "words" if "enum" in self.schemas[key] else kind
        self.names = self._names()

    def text(self, module: str) -> str:
        """Return the text of a module."""
        definitions = [self._definition(key) for key, where in self.modules.items() if where == module]
        body = "\n\n".join(definitions)
        written = f'"""{HEADS[module]} Written by `python -m tools.client_types`."""'
        imports = ["from typing import Any, Literal, NotRequired, TypedDict"]
        for other in HEADS:
            names = [
                self.names[key]
                for key, where in self.modules.items()
                if where == other != module and re.search(rf"\b{self.names[key]}\b", body)
            ]
            if names:
                imports.append(f"from appliance.client.{other} import {', '.join(sorted(names))}")
        return "\n".join([written, "", "from __future__ import annotations", "", *imports, "", body, ""])

    def _reached(self, start: Any) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            item = todo.pop()
            if isinstance(item, dict):
                key = str(item.get("$ref", "")).rsplit("/", 1)[-1]
                if key and key not in found:
                    found.add(key)
                    todo.append(self.schemas[key])
                todo += item.values()
            elif isinstance(item, list):
                todo += item
        return found

    def _names(self) -> dict[str, str]:
        """Return the client's names: without `View` where nothing else is called so, and without paths of modules."""
        names = {}
        for key in self.modules:
            *path, name = key.split("__")
            places = "_".join(part for part in path if part not in ("api", "models", "schemas"))
            names[key] = "".join(word.capitalize() for word in places.split("_")) + name
        taken = set(names.values())
        return {
            key: bare if name != (bare := name.removesuffix("View")) and bare not in taken else name
            for key, name in names.items()
        }

    def _definition(self, key: str) -> str:
        schema = self.schemas[key]
        name = self.names[key]
        if "enum" in schema:
            comment = f'"""{_wrapped(schema["description"], 0)}"""' if schema.get("description") else ""
            return f"{name} = Literal[{', '.join(map(repr, schema['enum']))}]\n{comment}"
        # an answer holds every field, those with a default too
        required = schema.get("properties", {}) if self.modules[key] == "views" else schema.get("required", ())
        fields = "\n".join(f"    {line}" for line in self._fields(schema, required))
        return f'class {name}(TypedDict):\n    """{_wrapped(schema.get("description", name), 4)}"""\n\n{fields}'

    def _fields(self, schema: dict[str, Any], required: Container[str]) -> Iterator[str]:
        for field, value in schema.get("properties", {}).items():
            kind = self._annotation(value)
            yield f"{field}: {kind if field in required else f'NotRequired[{kind}]'}"

    def _annotation(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            return self.names[schema["$ref"].rsplit("/", 1)[1]]
        if "anyOf" in schema:
            return " | ".join(self._annotation(one) for one in schema["anyOf"])
        if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
            return f"Literal[{', '.join(map(repr, values))}]"
        match schema.get("type"):
            case "array":
                return f"list[{self._annotation(schema.get('items', {}))}]"
            case "object":
                of_keys: dict[str, Any] = next(iter(schema.get("patternProperties", {}).values()), {})
                more = schema.get("additionalProperties")
                inner: dict[str, Any] = more if isinstance(more, dict) and more else of_keys
                return f"dict[str, {self._annotation(inner)}]"
            case kind:
                return SCALARS.get(str(kind), "Any")


def _wrapped(text: str, indent: int) -> str:
    paragraphs = [
        textwrap.fill(" ".join(part.split()), 116 - indent, subsequent_indent=" " * indent)
        for part in text.strip().split("\n\n")
    ]
    first, *rest = paragraphs
    if not rest:
        return first if "\n" not in first else f"{first}\n{' ' * indent}"
    body = ("\n\n" + " " * indent).join(paragraphs)
    return f"{body}\n{' ' * indent}"


if __name__ == "__main__":
    main()
