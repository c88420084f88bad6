"""Whatever a client sends within or beside the OpenAPI document: the API answers it or refuses it, and never fails."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation

from api.database import Database
from api.endpoints.app import create_app
from api.endpoints.errors import ProblemDetails
from api.settings import Settings
from tests import forks
from tests.fakes.engine import FakeEngine
from tests.forks import Fork
from tests.integration.agent.conftest import Authority, authority, free_port  # noqa: F401
from tests.postgresql import new_database

PASSWORD = "Correct1horse!"
URL = "postgresql+psycopg:///unused"

# only its document is asked of this application; the requests go to a server of its own
document = create_app(Settings(database_url=URL), Database(URL), FakeEngine(), reconcile=False).openapi()
Operation = APIOperation[Any, Any, Any, Any]
# the plugin of schemathesis gives all operations one name, of which xdist runs one
OPERATIONS = [
    found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations() if isinstance(found, Ok)
]
PARAMETERS = attrgetter("path_parameters", "query", "headers", "cookies")


@pytest.fixture(scope="module")
def server(authority: Authority, postgresql_server: Path) -> Iterator[httpx.Client]:  # noqa: F811
    """A server on loopback, and a client with an administrator's key."""
    port = free_port()
    certificate, key = authority.issue("master")
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "PENSTOCK_API_DATABASE_URL": new_database(postgresql_server),
            "PENSTOCK_API_PORT": str(port),
            "PENSTOCK_API_AGENT_CA": str(authority.ca),
            "PENSTOCK_API_AGENT_CERT": str(certificate),
            "PENSTOCK_API_AGENT_KEY": str(key),
            "PENSTOCK_API_AUDIT_FOLDER": folder,
            "PENSTOCK_API_AUDIT_KEY": str(key),
        }
        api = [sys.executable, "-m", "api"]
        forks.run([*api, "migrate"], environment, check=True)
        forks.run([*api, "create-admin", "--name", "admin"], environment, PASSWORD, check=True)
        log = Path(folder, "log")
        with log.open("w") as output:
            process = forks.start([*api, "serve"], environment, stderr=output)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                _await(client, process)
                login = client.post("/api/v1/auth/login", json={"name": "admin", "password": PASSWORD})
                login.raise_for_status()
                token = {"X-CSRF-Token": login.json().get("csrf_token", "")}
                made = client.post("/api/v1/api-keys", json={"name": "tests"}, headers=token)
                made.raise_for_status()
                client.cookies.clear()
                client.headers["Authorization"] = f"Bearer {made.json()['key']}"
                yield client
        finally:
            process.terminate()
            process.wait(60)


def _await(client: httpx.Client, process: Fork) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        try:
            client.get("/health")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return


def test_every_operation_of_the_document_is_tried() -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {(operation.method.upper(), operation.path) for operation in OPERATIONS} == described


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_operation_fails(operation: Operation, mode: GenerationMode, server: httpx.Client) -> None:
    @given(case=operation.as_strategy(mode))
    @settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
    def try_it(case: Case[Any]) -> None:
        answer = case.call(base_url=str(server.base_url), headers={"Authorization": server.headers["Authorization"]})
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert ProblemDetails.model_validate(answer.json()).errors, "every refusal says what and why"

    if mode.is_positive or takes_anything(operation):
        try_it()


def takes_anything(operation: Operation) -> bool:
    """Whether there is anything that could be sent beside the document."""
    return bool(len(operation.body) or any(len(group) for group in PARAMETERS(operation)))
