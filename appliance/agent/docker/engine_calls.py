"""Calls of the Docker Engine: what they raise in place of Docker's errors, and answers that come bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import requests
from docker.errors import APIError, DockerException, NotFound

from appliance.agent.docker.refusals import reason_of
from common.errors import ConflictError, NotFoundError, PenstockError, UnavailableError

P = ParamSpec("P")
R = TypeVar("R")
Item_co = TypeVar("Item_co", covariant=True)


class ImageMissingError(PenstockError):
    """The image of a container is not on this node yet."""


class EngineAwayError(UnavailableError):
    """The Docker Engine does not answer; what was asked for may have happened or not."""


class Closable(Protocol[Item_co]):
    """What comes from Docker bit by bit; `close` from another thread ends the wait for more."""

    def __iter__(self) -> Iterator[Item_co]: ...
    def __next__(self) -> Item_co: ...
    def close(self) -> None:
        """End the stream."""


def translated(call: Callable[P, R]) -> Callable[P, R]:
    """Turn Docker's errors into ours."""

    @wraps(call)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except NotFound as error:
            raise NotFoundError(reason_of(error), where="container", hint="list the node's containers") from error
        except APIError as error:
            kind = ConflictError if error.status_code == 409 else UnavailableError
            raise kind(reason_of(error), where="Docker", hint="see `journalctl -u docker` on the node") from error
        except (DockerException, requests.RequestException) as error:
            raise EngineAwayError(
                f"the Docker Engine does not answer: {error}", where="Docker", hint="run `systemctl status docker`"
            ) from error

    return answer
