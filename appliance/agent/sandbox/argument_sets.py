"""Sets of arguments of a system call, in a form that a seccomp filter can test. Pure.

A set says of some bits of the six arguments what they are, and leaves the others open. One set is one rule of a
filter, with one masked comparison an argument. Every comparison is a union of sets, and so is what is left of a set
without another, so that rules which contradict each other can be taken apart exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product, starmap

ARGUMENTS = 6
_WIDTH = 64
FULL = (1 << _WIDTH) - 1
HALF = (1 << 32) - 1
"""The lower bits of an argument, which are all that programs of 32 bits have."""

ArgumentSet = tuple[tuple[int, int], ...]
"""For each argument a mask and the value of the bits under it."""
MOST = 512
"""Sets of a sandbox: each takes 3 to 6 of the 4,096 steps of a filter, of which Docker's own rules take 1,000."""
ALL: ArgumentSet = ((0, 0),) * ARGUMENTS


def having(argument: int, mask: int, value: int) -> ArgumentSet:
    """Return the set whose `argument` has `value` under `mask`."""
    return _with(ALL, argument, (mask, value & mask))


def comparing(argument: int, operator: str, value: int, second: int = 0) -> list[ArgumentSet]:
    """Return disjoint sets of what passes a comparison of the OCI runtime specification, such as SCMP_CMP_GE.

    For SCMP_CMP_MASKED_EQ `value` is the mask and `second` what the bits under it are. What passes with 64 bits and not
    with the lower 32 alone is left out: a program of 32 bits is asked for these alone, so that a set which only the
    upper half tells from others would be all there is for it. Raises ValueError for an operator that is not of the
    specification.
    """
    makers: dict[str, Callable[[], list[ArgumentSet]]] = {
        "EQ": lambda: [having(argument, FULL, value)],
        "NE": lambda: without(ALL, having(argument, HALF, value)),
        "MASKED_EQ": lambda: [having(argument, value, second)],
        "GT": lambda: _range(argument, value, above=True),
        "GE": lambda: _range(argument, value, above=True, itself=True),
        "LT": lambda: _range(argument, value, above=False),
        "LE": lambda: _range(argument, value, above=False, itself=True),
    }
    if (maker := makers.get(operator.removeprefix("SCMP_CMP_"))) is None:
        raise ValueError(f"{operator} is no comparison of arguments")
    return maker()


def both(left: ArgumentSet, right: ArgumentSet) -> ArgumentSet | None:
    """Return what is in both sets; None where nothing is."""
    met = []
    for (mask, value), (other_mask, other_value) in zip(left, right, strict=True):
        if (value ^ other_value) & mask & other_mask:
            return None
        met.append((mask | other_mask, value | other_value))
    return tuple(met)


def without(one: ArgumentSet, taken: ArgumentSet) -> list[ArgumentSet]:
    """Return disjoint sets that together are what is in `one` and not in `taken`."""
    if both(one, taken) is None:
        return [one]
    rest, inside = [], one
    for argument, (mask, value) in enumerate(taken):
        for bit in _bits(mask & ~inside[argument][0]):
            known, so_far = inside[argument]
            rest.append(_with(inside, argument, (known | bit, so_far | (~value & bit))))
            inside = _with(inside, argument, (known | bit, so_far | (value & bit)))
    return rest


def left_of(sets: Iterable[ArgumentSet], taken: Iterable[ArgumentSet]) -> list[ArgumentSet]:
    """Return what is in one of `sets` and in none of `taken`; raises ValueError where that takes too many sets."""
    left = list(sets)
    for one in taken:
        left = [piece for whole in left for piece in without(whole, one)]
        if len(left) > MOST:
            raise ValueError(f"they make more than {MOST} comparisons of arguments")
    return left


def disjoint(sets: Iterable[ArgumentSet]) -> list[ArgumentSet]:
    """Return sets that together are the same, and no two of which meet; raises ValueError where they are too many."""
    apart: list[ArgumentSet] = []
    for one in sets:
        apart += left_of([one], apart)
        if len(apart) > MOST:
            raise ValueError(f"they make more than {MOST} comparisons of arguments")
    return apart


def _range(argument: int, value: int, *, above: bool, itself: bool = False) -> list[ArgumentSet]:
    """Return the numbers above or below a value whose lower half is so too, with the value `itself` or without."""
    low, whole = (
        [having(argument, width, value)] * itself + _beside(argument, value, width, above=above)
        for width in (HALF, FULL)
    )
    if value <= HALF:
        return low if above else whole
    return [one for one in starmap(both, product(low, whole)) if one is not None]


def _beside(argument: int, value: int, width: int, *, above: bool) -> list[ArgumentSet]:
    """Return the numbers above or below a value: those that differ first in one bit, for each bit that allows it."""
    return [having(argument, width & ~(bit - 1), value ^ bit) for bit in _bits(width) if bool(value & bit) is not above]


def _with(one: ArgumentSet, argument: int, part: tuple[int, int]) -> ArgumentSet:
    return (*one[:argument], part, *one[argument + 1 :])


def _bits(mask: int) -> Iterable[int]:
    """Return the bits of a mask, the highest first, so that numbers that are near share most of their sets."""
    return (1 << position for position in reversed(range(_WIDTH)) if mask >> position & 1)
