"""Log of a service: one line an event, as `key=value`; the service manager adds the time."""

from __future__ import annotations

import structlog


def write_lines() -> None:
    """Write what this process logs to standard output; lines of a request name it."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(),
    )
