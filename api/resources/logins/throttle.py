"""The throttle of logins: after some failures each further try waits twice as long, to a limit.

Failures count for a name, for an address, and for a name at an address. Where a user has signed in from an address not
long ago, only that last count matters there: whoever guesses at an administrator's password from elsewhere makes
strangers wait, not the administrator. A try counts as a failure before its password is looked at, so that many at once
gain nothing; a try that is refused does not count, so that nobody is kept out for longer than `LONGEST_S`. A try that
lies ahead, because the clock was put back since, counts as of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from sqlalchemy.ext.asyncio import AsyncSession

from api.resources.logins import repository
from api.tables.logins import LoginTries
from common.errors import ThrottledError
from common.sentence import Sentence

FREE = 10
"""How many failures in a row cost nothing, for a name."""
FREE_OF_ADDRESS = 100
"""The same for an address, behind which a whole floor may sit."""
LONGEST_S = 300
FORGOTTEN_AFTER = timedelta(days=1)
TRUSTED_FOR = timedelta(days=30)


@dataclass(frozen=True)
class Try:
    """An attempt to sign in."""

    name: str
    address: str

    @property
    def of_name(self) -> str:
        """The subject of the name alone."""
        return f"name {self.name}"

    @property
    def of_address(self) -> str:
        """The subject of the address alone."""
        return f"address {self.address}"

    @property
    def of_both(self) -> str:
        """The subject of the name at the address."""
        return f"both {self.name} {self.address}"

    @property
    def subjects(self) -> tuple[str, ...]:
        """All that the try counts for, in the order in which rows are locked."""
        return tuple(sorted((self.of_name, self.of_address, self.of_both)))


def delay_s(failures: int, free: int) -> int:
    """Return how long after the last of some failures the next try has to wait, in seconds."""
    return 0 if failures < free else min(2 ** min(failures - free, 16), LONGEST_S)


def wait_s(attempt: Try, known: Mapping[str, LoginTries], at: datetime) -> int:
    """Return how many seconds a try has to wait at a moment; 0 where it may go on."""
    frees = {attempt.of_both: FREE}
    if not _is_trusted(known.get(attempt.of_both), at):
        frees |= {attempt.of_name: FREE, attempt.of_address: FREE_OF_ADDRESS}
    ends = [
        min(known[subject].tried_at, at) + timedelta(seconds=delay_s(known[subject].failures, free))
        for subject, free in frees.items()
        if subject in known
    ]
    return max((ceil((end - at).total_seconds()) for end in ends if end > at), default=0)


async def begin(db: AsyncSession, attempt: Try, at: datetime) -> Mapping[str, datetime]:
    """Count a try as a failure until it is known better; raises ThrottledError where it comes too soon.

    Returns when each of its subjects was tried before, for `withdraw`.
    """
    await repository.forget_tries(db, at - FORGOTTEN_AFTER, at - TRUSTED_FOR)
    known = await repository.lock_tries(db, attempt.subjects, at)
    for tries in known.values():
        if at - tries.tried_at > FORGOTTEN_AFTER:
            tries.failures = 0
    if wait := wait_s(attempt, known, at):
        error = ThrottledError(
            Sentence("this was tried too often"),
            where="password",
            hint=Sentence("wait {seconds} s, then try again with the right password", seconds=wait),
        )
        error.retry_after_s = wait
        raise error
    before = {subject: tries.tried_at for subject, tries in known.items()}
    for tries in known.values():
        tries.failures += 1
        tries.tried_at = at
    return before


async def withdraw(db: AsyncSession, attempt: Try, at: datetime, before: Mapping[str, datetime]) -> None:
    """Take back what `begin` has counted at a moment: nobody could tell whether the password was right."""
    for subject, tries in (await repository.lock_tries(db, attempt.subjects, at)).items():
        tries.failures = max(0, tries.failures - 1)
        if tries.tried_at == at:
            tries.tried_at = before[subject]


async def succeed(db: AsyncSession, attempt: Try, at: datetime) -> None:
    """Take back what `begin` has counted: the password was right."""
    known = await repository.lock_tries(db, attempt.subjects, at)
    # Somebody with an account must not get more tries at other people's by signing in now and then.
    known[attempt.of_address].failures = max(0, known[attempt.of_address].failures - 1)
    known[attempt.of_name].failures = 0
    known[attempt.of_both].failures = 0
    known[attempt.of_both].succeeded_at = at


def _is_trusted(tries: LoginTries | None, at: datetime) -> bool:
    return tries is not None and tries.succeeded_at is not None and at - tries.succeeded_at < TRUSTED_FOR
