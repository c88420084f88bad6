"""Amounts and times that a person writes on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from common.errors import InputError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MIB = {"m": 1, "g": 1024, "t": 1024 * 1024}
_BEYOND = 10**12


def duration(text: str, field: str) -> int:
    """Return the seconds of a time such as `90s`, `30m`, `2h`, `1d` or `1d12h`; raises InputError."""
    parts = re.findall(r"(\d{1,9})([smhd])", text.lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.lower():
        raise InputError(f"{text!r} is no length of time", where=field, hint="write it like 90s, 30m, 2h or 1d12h")
    return sum(int(number) * SECONDS[unit] for number, unit in parts)


def size_mib(text: str, field: str) -> int:
    """Return the MiB of a size such as `512M`, `4G` or `1.5G`; raises InputError."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([mgt])(?:i?b)?", text.lower())
    if not match:
        raise InputError(f"{text!r} is no amount of memory", where=field, hint="write it like 512M, 4G or 1.5G")
    return int(Decimal(match[1]) * MIB[match[2]])


def cpu_milli(text: str, field: str) -> int:
    """Return the thousandths of a core of a number of cores such as `4` or `0.5`; raises InputError."""
    try:
        milli = Decimal(text) * 1000
        if not 0 <= milli < _BEYOND or milli != int(milli):
            raise InvalidOperation
    except ArithmeticError:
        raise InputError(f"{text!r} is no number of cores", where=field, hint="write it like 4 or 0.5") from None
    return int(milli)


def replicas(text: str, field: str) -> dict[str, int]:
    """Return the fields of a request that say how many containers: `4`, or `2..8` for as many as there is room for.

    Raises InputError.
    """
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text)
    if not match or not int(match[1]):
        raise InputError(f"{text!r} is no number of containers", where=field, hint="write it like 4, or 2..8")
    least = {"replicas": int(match[1])}
    return {**least, "max_replicas": int(match[2])} if match[2] else least


def weight(text: str, field: str) -> int | None:
    """Return a weight for what is spare: a number, or None for `quota`, to go by that; raises InputError."""
    if text == "quota":
        return None
    if not re.fullmatch(r"\d{1,9}", text):
        raise InputError(f"{text!r} is no weight", where=field, hint="write it like 0 or 3, or quota")
    return int(text)


def moment(text: str, field: str, *, ends: bool = False, now: datetime | None = None) -> str:
    """Return a moment as ISO 8601: a date, a date with a time, or `+2h` from now; raises InputError.

    A time without a zone is one of the user's; with `ends`, a date alone means the end of that day.
    """
    if text.startswith("+"):
        return ((now or datetime.now(UTC)) + timedelta(seconds=duration(text[1:], field))).isoformat()
    try:
        given = datetime.fromisoformat(text)
        whole_day = ends and not re.search(r"[T ]", text)
        return (given + timedelta(days=1) if whole_day else given).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"{text!r} is no date", where=field, hint="write 2027-12-31, 2027-12-31T18:00, or +2h from now"
        ) from None


def past(text: str, field: str, *, now: datetime | None = None) -> str:
    """Return a moment as ISO 8601: a date, a date with a time, or `2h` for two hours ago; raises InputError."""
    if text[:1].isdigit() and text[-1:].lower() in SECONDS:
        return ((now or datetime.now(UTC)) - timedelta(seconds=duration(text, field))).isoformat()
    try:
        return moment(text, field)
    except InputError:
        hint = "write 2027-12-31, 2027-12-31T18:00, or 2h for two hours ago"
        raise InputError(f"{text!r} is no date and no age", where=field, hint=hint) from None


def day(text: str) -> str:
    """Return a day written `20271231` as it is; raises InputError."""
    try:
        datetime.strptime(text, "%Y%m%d")  # noqa: DTZ007 - a day, and no moment
    except ValueError:
        raise InputError(f"{text!r} is no day", where="YYYYMMDD", hint="write it like 20271231") from None
    return text


def image(text: str) -> tuple[str, str]:
    """Return name and tag of an image written `NAME:TAG`; raises InputError."""
    name, colon, tag = text.partition(":")
    if name and colon and tag:
        return name, tag
    raise InputError(f"{text!r} is not a name with a tag", where="NAME:TAG", hint="write it like python:3.11")
