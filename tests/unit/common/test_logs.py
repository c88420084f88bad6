from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from common import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_an_event_is_one_line_that_names_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    logs.write("penstock-test")
    log = structlog.get_logger()
    log.info("serving", port=1, tls=True)
    with bound_contextvars(request_id="r1"):
        log.error("two words", reason="a b")
    assert capsys.readouterr().out == (
        'level=info event=serving port=1 tls=true\nlevel=error event="two words" reason="a b" request_id=r1\n'
    )
