"""The typed client beside the API's own document: every operation, every name, every type."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import pytest

from api.endpoints.access import PREFIX
from appliance.client import Client
from appliance.client.transport import Query, Resource
from common.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    PenstockError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from tools.client_types import document

NOT_FOR_CLIENTS = {
    ("get", "/health"): "beside the API, for the edge",
    ("post", "/agent/v1/heartbeat"): "for node agents, by their certificates",
    ("post", "/agent/v1/metrics"): "for node agents, by their certificates",
    ("post", "/agent/v1/denied-calls"): "for node agents, by their certificates",
    ("post", "/agent/v1/app-callers"): "for node agents, by their certificates",
    ("post", "/agent/v1/repairs"): "for the controller, by its certificate",
}
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
KINDS = (
    InputError,
    UnauthenticatedError,
    ForbiddenError,
    NotFoundError,
    ConflictError,
    ThrottledError,
    UnavailableError,
)


class Call:
    """What a method of the client would ask of the API."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Call it with something for each of its arguments."""
        self.name = method.__qualname__
        self.hints = get_type_hints(method, include_extras=True)
        self.method, self.path = "", ""
        self.names: Mapping[str, str] = {}
        self.query: Mapping[str, Any] = {}
        self.kind: Any = None
        self.has_body = False
        self.body: Mapping[str, Any] = {}

    @property
    def request(self) -> Any:
        """The type of the body, where keywords make it."""
        unpacked = [get_args(hint)[0] for hint in self.hints.values() if get_origin(hint) is Unpack]
        return unpacked[0] if unpacked else None

    @property
    def operation(self) -> dict[str, Any]:
        """The operation of the document."""
        found: dict[str, Any] = document()["paths"][PREFIX + self.path][self.method]
        return found


class Recorder(Client):
    """A client that notes what it would ask."""

    def __init__(self) -> None:
        super().__init__("https://master1")
        self.noted: Call

    def call(
        self,
        kind: Any,
        method: str,
        path: str,
        names: Mapping[str, str] = types.MappingProxyType({}),
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        patient: bool = False,
    ) -> Any:
        self.noted.kind, self.noted.method, self.noted.path = kind, method.lower(), path
        self.noted.names, self.noted.query = names, query or {}
        self.noted.has_body, self.noted.body = body is not None, body or {}
        return {"csrf_token": ""}

    def pages(self, kind: Any, path: str, *, query: Query) -> Iterator[Any]:
        self.call(list[kind], "GET", path, query={**query, "limit": 1, "after": "x"})
        return iter(())

    def stream(self, path: str, names: Mapping[str, str], query: Query | None = None) -> Iterator[bytes]:
        self.call(bytes, "GET", path, names, query=query)
        return iter(())


def noted(recorder: Recorder, method: Callable[..., Any]) -> Call:
    """Call a method with something for each of its arguments, and return what it asks."""
    recorder.noted = call = Call(method)
    positional, keywords = [], {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        value = something(call.hints[parameter.name])
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[parameter.name] = value
        else:
            positional.append(value)
    method(*positional, **keywords)
    return call


def something(hint: Any) -> Any:
    """Return a value of a type."""
    if get_origin(hint) in (types.UnionType, Union):
        return something(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is not None:
        return [something(get_args(hint)[0])]
    return {str: "x", int: 1, bool: True}[hint]


def calls() -> list[Call]:
    """Every method of the client that asks for an operation of the document."""
    recorder = Recorder()
    found = []
    for resource in list(vars(recorder).values()):
        if isinstance(resource, Resource):
            for name, method in inspect.getmembers(resource, inspect.ismethod):
                if not name.startswith("_") and name not in WEBSOCKETS:
                    found.append(noted(recorder, method))
    return found


WEBSOCKETS = ("exec",)
"""Methods that lead to WebSockets, which the document cannot describe."""
CALLS = calls()


def test_every_operation_has_a_method_or_a_reason_why_not() -> None:
    described = {(method, path) for path, methods in document()["paths"].items() for method in methods}
    asked = {(call.method, PREFIX + call.path) for call in CALLS}
    assert described - asked == set(NOT_FOR_CLIENTS)
    assert asked <= described


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
class TestEveryMethod:
    """What a method sends and returns is what the document says."""

    def test_names_and_parameters(self, call: Call) -> None:
        parameters = call.operation.get("parameters", [])
        assert set(call.names) == {one["name"] for one in parameters if one["in"] == "path"}
        assert set(call.query) == {one["name"] for one in parameters if one["in"] == "query"}
        for one in parameters:
            if one["in"] == "query":
                check(type(call.query[one["name"]]), one["schema"], loosely=True)

    def test_body(self, call: Call) -> None:
        described = call.operation.get("requestBody")
        if described is None:
            assert not call.has_body
            return
        schema = described["content"]["application/json"]["schema"]
        if call.request:
            check(call.request, schema)
        else:
            assert set(call.body) == set(resolved(schema)["properties"])

    def test_answer(self, call: Call) -> None:
        responses = call.operation["responses"]
        content, *others = [answer["content"] for status, answer in responses.items() if status.startswith("2")]
        assert all(other == content for other in others)
        if call.kind is bytes:
            assert all("schema" not in described for described in content.values())
            return
        check(call.kind, content["application/json"]["schema"])
        returned = call.hints["return"]
        assert returned == call.kind


def check(hint: Any, schema: dict[str, Any], *, loosely: bool = False) -> None:
    """Hold a type against a schema; `loosely` where the schema may allow more."""
    schema = resolved(schema)
    if get_origin(hint) is NotRequired:
        return check(get_args(hint)[0], schema)
    if "anyOf" in schema:
        return check_union(hint, [resolved(one) for one in schema["anyOf"]], loosely)
    if is_typeddict(hint):
        return check_fields(hint, schema)
    if get_origin(hint) is Literal:
        assert set(get_args(hint)) == set(schema.get("enum") or [schema["const"]])
    elif get_origin(hint) is list or hint is list:
        assert schema["type"] == "array"
        if get_args(hint):
            check(get_args(hint)[0], schema["items"])
    elif get_origin(hint) is dict:
        values = schema.get("additionalProperties") or next(iter(schema["patternProperties"].values()))
        if values is True:
            assert get_args(hint)[1] is Any
        else:
            check(get_args(hint)[1], values)
    elif not (loosely and "enum" in schema):
        assert "enum" not in schema
        assert JSON_TYPES[hint] == schema["type"]
    return None


def check_union(hint: Any, schemas: list[dict[str, Any]], loosely: bool) -> None:
    if loosely:
        schemas = [schema for schema in schemas if schema.get("type") != "null"]
        check(hint, schemas[0], loosely=True)
        return
    options = get_args(hint)
    assert len(options) == len(schemas)
    for option, schema in zip(options, schemas, strict=True):
        check(option, schema)


def check_fields(hint: Any, schema: dict[str, Any]) -> None:
    hints = get_type_hints(hint, include_extras=True)
    assert set(hints) == set(schema.get("properties", {})), hint.__name__
    answered = hint.__module__.endswith(".views")
    if not answered:
        required = {name for name, kind in hints.items() if get_origin(kind) is not NotRequired}
        assert required == set(schema.get("required", ())), hint.__name__
    for name, kind in hints.items():
        check(kind, schema["properties"][name])


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    found: dict[str, Any] = document()["components"]["schemas"][reference.rsplit("/", 1)[1]] if reference else schema
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_of_the_api_is_the_same_error_here(kind: type[PenstockError]) -> None:
    client = Client("https://master1", api_key="" if kind is UnauthenticatedError else "k")
    body = b'{"errors": [{"pointer": "/x", "detail": "is wrong", "hint": "mend it"}]}'
    refusal = client.refusal(kind.http_status, body)
    assert type(refusal) is kind
    assert str(refusal) == "x: is wrong. Hint: mend it"


def test_no_other_status_means_an_error_of_its_own() -> None:
    """400 is what a proxy says of a request that the API would find not valid, 413 both say of one that is too long."""
    client = Client("https://master1")
    found = {status: type(client.refusal(status, b"")) for status in range(300, 600)}
    ours = {kind.http_status: kind for kind in KINDS} | dict.fromkeys((400, 413), InputError)
    assert found == dict.fromkeys(found, UnavailableError) | ours
