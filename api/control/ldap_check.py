"""Check that the site's directory answers: without it nobody whom it knows signs in, and who has left keeps keys."""

from __future__ import annotations

import asyncio

from ldap3.core.exceptions import LDAPBindError

from api.auth import directory
from api.settings import Settings
from common.checks import Check, CheckState
from common.errors import UnavailableError

ANSWER_S = 5.0
"""So long an answer may take: the site's other checks wait for this one."""


async def look(settings: Settings) -> list[Check]:
    """Return the check; none where people are known to the site alone."""
    if not settings.ldap_url:
        return []
    about = "directory", "directory answers"
    hint = f"look whether {settings.ldap_url} takes connections from the master"
    try:
        async with asyncio.timeout(ANSWER_S):
            await directory.look(settings)
    except TimeoutError:
        return [Check(*about, CheckState.FAIL, f"no answer from {settings.ldap_url} within {ANSWER_S:g} s", hint)]
    except UnavailableError as error:
        if isinstance(error.__cause__, LDAPBindError):
            hint = "look at `ldap_bind_dn`, its password, and what it may read below the entry where people are"
            # a person's own entry can be told from its name, without the site's account
            state = CheckState.WARN if settings.ldap_user_dn else CheckState.FAIL
            return [Check(*about, state, str(error.__cause__), hint)]
        return [Check(*about, CheckState.FAIL, f"{settings.ldap_url}: {error.__cause__}", hint)]
    return [Check(*about, CheckState.OK, f"{settings.ldap_url} answers")]
