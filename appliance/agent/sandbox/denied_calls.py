"""Denied system calls since the control API was last told: bounded, however often a program tries. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from common.denied_call_protocol import DeniedCall

MAX_SERIES = 64
"""Series of one container; what comes on top is put together."""
MAX_REPORT = 1000
OTHERS = "*"

_Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class SeenCall:
    """One denied call of a process of a container, `pid` as the container numbers it."""

    container_id: str
    session_id: str
    call: str
    process: str
    pid: int
    effect: str
    at: datetime

    @property
    def key(self) -> _Key:
        """What tells its series from others."""
        return self.container_id, self.call, self.process, self.effect


@dataclass
class _Series:
    first: SeenCall
    last: SeenCall
    count: int = 1
    told: int = 0


@dataclass
class DeniedCalls:
    """The series of denied calls of a node. Not for several threads at once."""

    _series: dict[_Key, _Series] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def note(self, seen: SeenCall) -> None:
        """Count a denied call."""
        if seen.key not in self._series and self._sizes.get(seen.container_id, 0) >= MAX_SERIES:
            seen = replace(seen, call=OTHERS, process=OTHERS, effect=OTHERS)
        if (series := self._series.get(seen.key)) is not None:
            series.count += 1
            series.last = seen
            return
        self._series[seen.key] = _Series(seen, seen)
        self._sizes[seen.container_id] = self._sizes.get(seen.container_id, 0) + 1

    def untold(self) -> list[DeniedCall]:
        """Return the series that have grown since they were told, at most as many as one report takes."""
        grown = (series for series in self._series.values() if series.count > series.told)
        return [_denied_call(series) for _, series in zip(range(MAX_REPORT), grown, strict=False)]

    @property
    def reports(self) -> int:
        """How many reports there are to make."""
        grown = sum(series.count > series.told for series in self._series.values())
        return -(-grown // MAX_REPORT)

    def tell(self, denied_calls: Iterable[DeniedCall]) -> None:
        """Note that the control API has these."""
        for denied in denied_calls:
            key = denied.container_id, denied.call, denied.process, denied.effect
            if (series := self._series.get(key)) and series.first.at == denied.first_at:
                series.told = max(series.told, denied.count)
                # who has been told comes last: one that grows all the time keeps nobody from being told
                self._series[key] = self._series.pop(key)

    def forget_all_but(self, containers: Collection[str]) -> None:
        """Forget the series of other containers that have been told."""
        ended = [
            key for key, series in self._series.items() if key[0] not in containers and series.told >= series.count
        ]
        for key in ended:
            del self._series[key]
            self._sizes[key[0]] -= 1
            if not self._sizes[key[0]]:
                del self._sizes[key[0]]


def _denied_call(series: _Series) -> DeniedCall:
    last = series.last
    return DeniedCall(
        container_id=last.container_id,
        session_id=last.session_id,
        call=last.call,
        process=last.process,
        pid=last.pid,
        effect=last.effect,
        first_at=series.first.at,
        last_at=last.at,
        count=series.count,
    )
