"""Security in the API's document: the schemes by which callers are known, and what each operation needs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from api.auth.policy import TABLE
from api.endpoints.access import COOKIE, CSRF_HEADER, SAFE_METHODS, action_of, is_for_agents

KEY, LOGIN, CSRF, CERTIFICATE = "key", "login", "csrf", "certificate"
SCHEMES: dict[str, dict[str, str]] = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. Of its scopes, each with those before it, an operation names the least: "
        "read, submit, all.",
    },
    LOGIN: {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A login, for pages of the site's own. Without TLS, as developers serve it, "
        "the name is without its prefix.",
    },
    CSRF: {
        "type": "apiKey",
        "in": "header",
        "name": CSRF_HEADER,
        "description": "The token of the login, with which a page of the site's own makes changes.",
    },
    CERTIFICATE: {"type": "mutualTLS", "description": "The certificate of a node, for its agent."},
}


def described(document: dict[str, Any], app: FastAPI) -> dict[str, Any]:
    """Return an OpenAPI document with the schemes, and what each operation needs of them."""
    document["components"]["securitySchemes"] = SCHEMES
    endpoints = {
        (str(context.path), method.lower()): context.endpoint
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            operation["security"] = _needs(endpoints[path, method], method.upper())
    return document


def _needs(endpoint: Callable[..., Any] | None, method: str) -> list[dict[str, list[str]]]:
    """Return the ways to call an operation, any of which will do."""
    if is_for_agents(endpoint):
        return [{CERTIFICATE: []}]
    wanted = action_of(endpoint)
    if wanted is None:
        return []
    csrf: dict[str, list[str]] = {} if method in SAFE_METHODS else {CSRF: []}
    return [{KEY: [TABLE[wanted].key.value]}, {LOGIN: [], **csrf}]
