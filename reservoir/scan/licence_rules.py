"""The rules of a policy on licences: what is allowed, what is denied, and of what nobody can tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from itertools import chain, product
from math import prod
from typing import Any

from license_expression import AND, OR, LicenseWithExceptionSymbol

from common.errors import Problem
from reservoir.artifacts.licence import spdx
from reservoir.scan.licence_words import in_doubt
from reservoir.scan.policy import Licences
from reservoir.scan.report import Licence

# what license-expression parses; the library that it is made of has no types
Expression = Any
# so many ways to choose are tried; more are in doubt
WAYS = 1000


class Answer(IntEnum):
    """What a policy says of a licence, the strictest first."""

    DENIED = 0
    UNKNOWN = 1
    ALLOWED = 2


def judge(licences: Iterable[Licence], rules: Licences) -> list[Problem]:
    """Return a problem for each package whose licence the rules keep out, or do not know."""
    lists = _Lists(rules)
    problems = []
    for licence in licences:
        where = f"{licence.name} {licence.version}"
        answer = lists.answer(licence.expression) if licence.expression else Answer.UNKNOWN
        if answer == Answer.DENIED:
            reason = f"its licence {licence.expression} is not allowed"
            problems.append(Problem(where, reason, "remove the package, or change `licences` in the policy"))
        elif answer == Answer.UNKNOWN and rules.unknown_blocks:
            why = licence.source if licence.expression is None else f"{licence.expression} may be one that is denied"
            reason = f"its licence is not known{f': {why}' if why else ''}"
            problems.append(Problem(where, reason, "state its licence in the policy under `licences.stated`"))
    return problems


class _TooManyError(Exception):
    """More ways to choose than are tried."""


@dataclass(frozen=True)
class _Lists:
    """The lists of a policy, held against expressions as wholes and part by part."""

    rules: Licences

    @cached_property
    def _allow(self) -> set[str]:
        return {_words(_parsed(text)) for text in self.rules.allow}

    @cached_property
    def _deny(self) -> list[Expression]:
        return [_parsed(text) for text in self.rules.deny]

    @cached_property
    def _denied(self) -> frozenset[str]:
        return _names(self.rules.deny)

    @cached_property
    def _stated(self) -> frozenset[str]:
        return _names(self.rules.stated.values())

    @cached_property
    def _together(self) -> list[Expression]:
        """Return the entries that name what holds together: one choice may be denied for what another brings."""
        return [entry for entry in map(_parsed, (*self.rules.allow, *self.rules.deny)) if isinstance(entry, AND)]

    def answer(self, text: str) -> Answer:
        """Return what the lists say of an expression, and of each way to choose where the lists hold names together."""
        whole = _parsed(text)
        answer = self._of(whole)
        if answer == Answer.DENIED or not self._together:
            return answer
        try:
            ways = self._ways(whole)
        except _TooManyError:
            return min(answer, Answer.UNKNOWN)
        return min(answer, max(self._of(spdx().AND(*way).simplify() if len(way) > 1 else way[0]) for way in ways))

    def _of(self, part: Expression) -> Answer:
        """Return the answer for a part: of a choice the best one counts, of what holds together the worst."""
        # whoever names a whole expression has decided on it
        if _words(part) in self._allow:
            return Answer.ALLOWED
        if any(_contains(part, denied) for denied in self._deny):
            return Answer.DENIED
        if isinstance(part, OR):
            return max(self._of(inner) for inner in part.args)
        if isinstance(part, AND):
            rest = [inner for inner in part.args if not self._inside(inner, part.args)]
            return min((self._of(inner) for inner in rest), default=Answer.ALLOWED)
        return self._single(part)

    def _ways(self, part: Expression) -> list[tuple[Expression, ...]]:
        """Return the ways to choose among what a part holds; raises _TooManyError."""
        if self._kept(part):
            return [(part,)]
        inner = [self._ways(one) for one in part.args]
        if isinstance(part, OR):
            return [way for ways in inner for way in ways]
        if prod(map(len, inner)) > WAYS:
            raise _TooManyError
        return [tuple(dict.fromkeys(chain.from_iterable(ways))) for ways in product(*inner)]

    def _kept(self, part: Expression) -> bool:
        """Say whether a part is judged as a whole: one licence, and what the lists name or never hold together."""
        if not isinstance(part, AND | OR):
            return True
        named = self._allow | {
            _words(one) for one in (*self._deny, *(arg for one in self._together for arg in one.args))
        }
        return _words(part) in named or not part.symbols & {name for entry in self._together for name in entry.symbols}

    def _inside(self, inner: Expression, beside: Sequence[Expression]) -> bool:
        """Say whether a part stands in an allowed expression that is there as a whole."""
        here = {_words(one) for one in beside}
        whole = [one for one in map(_parsed, self.rules.allow) if isinstance(one, AND)]
        names = [{_words(part) for part in one.args} for one in whole]
        return any(_words(inner) in parts and parts <= here for parts in names)

    def _single(self, part: Expression) -> Answer:
        """Return the answer for one licence, with its exception or without."""
        bare = str(part.license_symbol) if isinstance(part, LicenseWithExceptionSymbol) else str(part)
        if bare in {_words(denied) for denied in self._deny}:
            return Answer.DENIED
        # a licence in the place of an exception allows nothing
        if (
            isinstance(part, LicenseWithExceptionSymbol)
            and not part.exception_symbol.is_exception
            and (self.rules.allow or self.rules.deny)
        ):
            return Answer.UNKNOWN
        if self.rules.allow:
            return Answer.ALLOWED if bare in self._allow else Answer.DENIED
        doubt = self._denied and bare not in self._stated and in_doubt(bare, self._denied)
        return Answer.UNKNOWN if doubt else Answer.ALLOWED


@cache
def _parsed(text: str) -> Expression:
    """Return an expression in the one form that equal ones share."""
    return spdx().parse(text, validate=False).simplify()


def _names(texts: Iterable[str]) -> frozenset[str]:
    """Return the single licences in expressions."""
    return frozenset(str(name) for text in texts for name in spdx().license_keys(text))


def _words(part: Expression) -> str:
    return str(part.render()) if isinstance(part, AND | OR | LicenseWithExceptionSymbol) else str(part)


def _contains(part: Expression, denied: Expression) -> bool:
    """Say whether a denied expression is a part, or among what holds together in it."""
    if _words(part) == _words(denied):
        return True
    if isinstance(part, AND) and isinstance(denied, AND):
        return {_words(one) for one in denied.args} <= {_words(one) for one in part.args}
    return False
