"""Names of callers by their certificates, and the agent's own certificate."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from appliance.agent.settings import Settings
from common import certificates
from common.revocation import refuse_revoked

_TIMEOUT_S = 10.0
_KEEP_S = 60.0
"""So long an idle connection to the API stays: longer than between heartbeats, and less than the edge of agents keeps
it, which then never closes one just when it is used.
"""


def common_name(certificate: dict[str, Any] | None) -> str:
    """Return the only common name of a certificate, as Python's ssl tells it; empty where there is none."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def server_context(settings: Settings) -> ssl.SSLContext:
    """Return how the agent speaks TLS with those who call it: both sides show certificates of the site.

    Raises InputError where a file cannot be used, as `api_client` does.
    """
    context = certificates.context(ssl.Purpose.CLIENT_AUTH, settings.ca, settings.cert, settings.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return refuse_revoked(context, settings.crl)


def api_client(settings: Settings) -> httpx.AsyncClient:
    """Return a client of the control API, to which the agent shows its certificate."""
    context = certificates.context(ssl.Purpose.SERVER_AUTH, settings.ca, settings.cert, settings.key)
    limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEEP_S)
    return httpx.AsyncClient(
        base_url=settings.api_url,
        verify=refuse_revoked(context, settings.crl),
        timeout=_TIMEOUT_S,
        limits=limits,
        trust_env=False,
    )
