"""The one hierarchy of errors: what went wrong, where, why, and what to do about it.

Library code raises these. Each class knows its exit code, which the command line ends with, and its HTTP status, by
which API and agents answer: `kind_of` finds the class again on the other side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

# a user and a password in an address
CREDENTIALS = re.compile(r"\b(https?|ftp)://[^/\s?#]*@", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    `where` names a field, or a file with its line; `reason` says what is wrong with it; `hint` says what to do.
    Addresses in it lose their user and password: what is told goes into logs. Characters that terminals act upon are
    written out, as names of files on a carried medium may have any.
    """

    where: str
    reason: str
    hint: str

    def __post_init__(self) -> None:
        """Take credentials out, and write out what is not to be printed as it is."""
        for name, kept in (("where", ""), ("reason", "\n\t"), ("hint", "\n\t")):
            told = getattr(self, name)
            found = printable(CREDENTIALS.sub(r"\1://", told), kept)
            # what is told stays the sentence that it is where nothing had to go
            if found != told:
                object.__setattr__(self, name, found)

    def __str__(self) -> str:
        """Return the problem as one line of text."""
        place = f"{self.where}: " if self.where else ""
        hint = f" Hint: {self.hint}" if self.hint else ""
        return f"{place}{self.reason}.{hint}"


def printable(text: str, kept: str = "") -> str:
    """Return a text with every character written out that is not to be printed, but for those that are `kept`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, reason: str, *, where: str = "", hint: str = "") -> None:
        """Make an error of one problem."""
        self.problems: tuple[Problem, ...] = (Problem(where, reason, hint),)
        super().__init__(str(self.problems[0]))

    @classmethod
    def of(cls, problems: list[Problem]) -> PenstockError:
        """Make one error of several problems, so that the user can mend them in one go."""
        error = cls(problems[0].reason, where=problems[0].where, hint=problems[0].hint)
        error.problems = tuple(problems)
        error.args = ("\n".join(str(problem) for problem in problems),)
        return error


class InputError(PenstockError):
    """Something that a person or a program gave us is not valid; nothing was changed."""

    exit_code = 2
    http_status = 422


class IntegrityError(PenstockError):
    """A signature or a hash does not hold, or an artifact is missing or unexpected."""

    exit_code = 3


class ProcessError(PenstockError):
    """A program that we started failed."""

    exit_code = 4


class UnavailableError(PenstockError):
    """Something that we need cannot be reached or has no room; trying again later may help."""

    exit_code = 5
    http_status = 503


class NotFoundError(PenstockError):
    """What was named does not exist, or the caller may not see it."""

    exit_code = 6
    http_status = 404


class ConflictError(PenstockError):
    """The request contradicts the present state."""

    exit_code = 7
    http_status = 409


class ForbiddenError(PenstockError):
    """The caller is known but may not do this."""

    exit_code = 8
    http_status = 403


class UnauthenticatedError(PenstockError):
    """The caller is not known."""

    exit_code = 9
    http_status = 401


class ThrottledError(PenstockError):
    """The caller has tried too often; trying again is right only after `retry_after_s` seconds."""

    exit_code = 10
    http_status = 429
    retry_after_s = 1


class PartialError(PenstockError):
    """All was done but for a part, which is named; doing it again does the rest."""

    exit_code = 11


_BY_STATUS = {kind.http_status: kind for kind in PenstockError.__subclasses__() if "http_status" in vars(kind)}


def kind_of(status: int) -> type[PenstockError]:
    """Return the class that an HTTP status stands for; UnavailableError for one that is none of ours."""
    return InputError if status in (400, 413) else _BY_STATUS.get(status, UnavailableError)
