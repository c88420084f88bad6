"""A container of a session that somebody goes into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import InvalidHandshake, InvalidStatus

from appliance.client import Client
from appliance.client.transport import CONNECT_S
from common.errors import PenstockError, UnavailableError, kind_of
from common.protocol import STALLED_S


@dataclass(frozen=True)
class Place:
    """A container of a session, which is named by its name or id."""

    client: Client
    session: str
    project: str
    container: int = 0

    def address(self, command: Sequence[str], *, tty: bool = False, rows: int = 24, cols: int = 80) -> str:
        """Return the address of the WebSocket of a command."""
        sessions, options = self.client.sessions, {"rows": rows, "cols": cols}
        return sessions.exec(self.session, command, project=self.project, container=self.container, tty=tty, **options)

    def options(self) -> Mapping[str, Any]:
        """Return how a WebSocket to the API is opened."""
        return {
            "ssl": self.client.tls(),
            "additional_headers": self.client.headers,
            "compression": None,
            "proxy": None,
            "max_size": None,
            "open_timeout": min(CONNECT_S, self.client.answer_s),
            # what nobody reads holds up the answers to pings, too
            "ping_timeout": STALLED_S,
        }

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn what hinders a WebSocket into errors of ours."""
        try:
            yield
        except InvalidStatus as error:
            raise self.client.refusal(error.response.status_code, bytes(error.response.body or b"")) from error
        except InvalidHandshake as error:
            raise UnavailableError(
                f"the session cannot be entered: {error}", where=self.client.url, hint="check the address of the API"
            ) from error


def error_of(control: Mapping[str, Any]) -> PenstockError:
    """Return the error that a control frame tells."""
    kind = kind_of(control["status"]) if control.get("status") else PenstockError
    # the text of an error, which is taken apart so that it reads the same here
    reason, _, hint = control["reason"].partition(" Hint: ")
    return kind(reason.removesuffix("."), hint=hint)


def lost() -> UnavailableError:
    """Return what it means that a command does not tell how it ended."""
    return UnavailableError(
        "the connection to the session was lost", where="session", hint="look with `penstock get NAME`, and try again"
    )
