"""Judging a difference by the truth: what the model computes in float64, and how far float32 roundings move that.

Two right runtimes may differ by more than any fixed bound where a model amplifies roundings: a variance as E[x²]−E[x]²,
the logarithm of a small power, a deep network of random weights.  The float64 twin of the model tells the true value
of every output, and runs of it with every operation's result rounded at random (Monte Carlo arithmetic, Parker 1997)
tell how far roundings move it.  An artifact is right where it is no further from the truth than roundings explain; so
is one that is nearer to it than the source.  The source itself has to be that near, too: otherwise the twin is that
of another model, and explains nothing.

A spread is what roundings may do, not what they have to.  A source that is much nearer to the truth computes in a way
on which roundings do not act (the deviation of equal elements as 0), and its numbers are the ones to deliver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from convertkit.artifact import Array
from convertkit.stage import Feed

ROUNDINGS = 16.0
"""How many times the spread of a few random roundings an error may be: kernels add up in other orders, and use
approximations of exp, log and tanh that are a few units in the last place off."""
TYPICAL = 0.75
"""The quantile of the spread below which no element's own is believed: a few runs may miss what moves one element."""
_QUANTILES = (0.5, 0.9, 0.99)
_BY_CHANCE = 0.01
_AS_THE_SOURCE = 8.0
"""How many times the source's own error, or the spread, a quantile of the error may be."""


_MUCH_NEARER = 64.0
"""How many times the source's error the spread is where the source computes in a way of its own, not by luck."""
_NO_LUCK = 8
"""Elements of which all are as near; fewer have to be nearer in proportion."""
_AS_NEAR = 16.0
_OF_A_STEP = 2.0**-10
"""What moves less than this part of a step moves no integer in front of it."""
_OF_THE_SCALE = 2.0**-6
"""The part of an output's scale by which an artifact may be further from the truth than such a source.
Measured by ``bench/delicate.py`` on small models of all kinds: the strictest power of two that refuses no right one."""


class Truth(Protocol):
    """What a model computes for one feed in float64, and how far perturbed runs are from that, by output.

    ``spread`` is the largest change of each element, ``calmest`` the largest of any element in the run that has the
    least.
    """

    @property
    def values(self) -> Mapping[str, Array]: ...
    @property
    def spread(self) -> Mapping[str, Array]: ...
    @property
    def calmest(self) -> Mapping[str, float]: ...

    @property
    def ties(self) -> Callable[[], Ties | None]: ...
    @property
    def thorough(self) -> Callable[[], Truth]: ...
    @property
    def placed(self) -> Collection[str]: ...
    @property
    def near_ties(self) -> Callable[[float], Sequence[Mapping[str, Array]]]: ...


class Ties(Protocol):
    """What a model delivers in float64, first, and when tied candidates are chosen in other orders.

    ``chosen`` tells the candidates of each run, ``spread`` how far roundings move the first one while the same
    candidates are chosen.  ``prefer`` makes one more run: the given candidates go before those that tie with them.
    """

    @property
    def runs(self) -> Sequence[Mapping[str, Array]]: ...

    @property
    def chosen(self) -> Sequence[Array]: ...

    @property
    def prefer(self) -> Callable[[Array], tuple[Mapping[str, Array], Array]]: ...

    @property
    def spread(self) -> Mapping[str, Array]: ...


AskTruth = Callable[[Feed], Truth | None]
"""The truth for one feed, state included; None where no twin of the model can be had."""


def explanation(
    reference: Array,
    got: Array,
    value: Array,
    spread: Array,
    floor: float,
    calls: int = 1,
    usual: float = 0.0,
    *,
    picked: bool = False,
) -> str:
    """How float32 roundings explain that ``got`` is not ``reference``; empty where they do not.

    The arrays have one shape; ``value`` and ``spread`` are the truth's.  ``floor`` is the part of the largest true
    value that any two runtimes may differ by.  ``calls`` is how many calls a state went through before, each of which
    adds its roundings.  ``usual`` is the output's largest value on usual inputs.  ``picked`` says that it holds
    candidates, or follows the place of a largest element: the source has one of them exactly, and another one is off by
    a whole row.
    """
    if not reference.shape == got.shape == value.shape or reference.dtype.kind in "OUSTc":
        return ""
    if reference.dtype.kind in "iub":
        return _of_integers(reference, got, value, spread)
    allowed = _allowed(value, spread, floor, calls)
    with np.errstate(invalid="ignore", over="ignore"):
        of_source = _error(reference, value, np.isinf(spread))
        of_artifact = _error(got, value, np.isinf(spread))
    if np.isfinite(reference).any() and not np.isfinite(got[np.isfinite(reference)]).all():
        return ""
    # Where the source overflows and the artifact does not, the truth alone tells whether that is right.
    held = np.isfinite(reference)
    if (of_source[held] > allowed[held]).any() or (of_artifact > allowed).any():
        return ""
    if not _is_no_worse(of_artifact[held], of_source[held], spread[held], floor * _largest(value)):
        return ""
    scale = max(usual, _largest(value))
    if not picked and not _follows(of_artifact[held], of_source[held], spread[held], scale):
        return ""
    return (
        f"float64 tells: the source is {_largest(of_source[held]):.2g} from the true value, "
        f"this {_largest(of_artifact[held]):.2g}, roundings of float32 move it by {_largest(spread):.2g}"
    )


def leaves_a_limit(reference: Array, got: Array, value: Array, spread: Array) -> bool:
    """Whether ``got`` differs from a limit at which the source stands by more than roundings move it, however little.

    A limit is the largest or least value, as behind a clamp: what computes it computes one number, so that a tolerance
    of the largest value has no say.  Integers are judged without it.  Of many elements a few lie so close to the limit
    that roundings carry them over it, though the few runs of the twin have not seen it: as many as lie so close inside.
    """
    if reference.dtype.kind != "f":
        return False
    if not reference.shape == got.shape == value.shape:
        return True
    for limit in (reference.max(initial=-np.inf), reference.min(initial=np.inf)):
        held = (reference == limit) & np.isfinite(value)
        bound = ROUNDINGS * float(spread[held].max(initial=0.0))
        sure = held & (np.abs(reference - value) <= bound)
        left = sure & (np.abs(got - value) > bound) & (got != reference)
        if left.any() and int(left.sum()) > _as_close(reference, got[left], limit, spread):
            return True
    return False


def _as_close(reference: Array, left: Array, limit: float, spread: Array) -> int:
    """How many elements lie no further inside of ``limit`` than roundings carry; 0 where one of ``left`` is further."""
    inside = (reference != limit) & np.isfinite(spread)
    if not inside.any():
        return 0
    reach = ROUNDINGS * float(np.quantile(spread[inside], 0.5))
    if float(np.abs(left - limit).max()) > reach:
        return 0
    return int((inside & (np.abs(reference - limit) <= reach)).sum())


def moves_as_many(changed: float, spread: Array, step: float) -> bool:
    """Whether roundings move about as many elements to a neighbouring integer as ``changed``, a share, did.

    One of a hundred may be chance.  ``step`` is the scale of the integers.
    """
    return changed <= max(_BY_CHANCE, _AS_THE_SOURCE * float(np.mean(spread > 0.5 * step)))


def is_nearest_by_luck(reference: Array, value: Array, calmest: float, step: float) -> bool:
    """Whether a source of integers is nearer to the truth than roundings may carry it, as some perturbed run is.

    In that run no value went over a tie, as in the source; where none is so near, the source computes in a way of its
    own.  ``step`` is the scale of the integers.
    """
    of_source = _largest(_error(reference, value, np.zeros(value.shape, bool)))
    return calmest <= max(_MUCH_NEARER * of_source, _OF_A_STEP * step)


def is_ill_conditioned(truth: Truth, bound: float) -> bool:
    """Whether roundings alone move an output of floats by more than ``bound`` of its largest value."""
    for name, value in truth.values.items():
        if value.dtype.kind == "f" and _largest(truth.spread[name]) > bound * _largest(value):
            return True
    return False


def _of_integers(reference: Array, got: Array, value: Array, spread: Array) -> str:
    other = reference != got
    told = all(_is_decided(each[other], value[other], spread[other]) for each in (reference, got))
    return f"{int(other.sum())} values are decided by single roundings or by the order of equals" if told else ""


def _is_decided(integers: Array, value: Array, spread: Array) -> bool:
    """Whether roundings move each of these values, and about as far as the integers are from it."""
    apart = np.abs(integers.astype(np.float64) - value.astype(np.float64))
    return bool(((spread > 0) & (apart <= ROUNDINGS * spread)).all())


def _allowed(value: Array, spread: Array, floor: float, calls: int) -> Array:
    finite = spread[np.isfinite(spread)]
    typical = float(np.quantile(finite, TYPICAL)) if finite.size else 0.0
    allowed: Array = floor * _largest(value) + ROUNDINGS * calls * np.maximum(spread, typical)
    return allowed


def _error(given: Array, value: Array, unsettled: Array) -> Array:
    """The distance from the truth; none where both are the same infinity or NaN, or roundings decide on those."""
    wide = given.astype(np.float64)
    same = (wide == value) | (np.isnan(wide) & np.isnan(value)) | unsettled
    error = np.where(same, 0.0, np.abs(wide - value))
    return np.where(np.isnan(error), np.inf, error)


def _is_no_worse(error: Array, of_source: Array, spread: Array, floor: float) -> bool:
    if error.size == 0:
        return True
    with np.errstate(invalid="ignore"):  # between two infinite spreads there is no quantile
        pairs = zip(*(np.quantile(each, _QUANTILES) for each in (error, of_source, spread)), strict=True)
    return all(mine <= floor + _AS_THE_SOURCE * max(theirs, moved) for mine, theirs, moved in pairs)


def _follows(error: Array, of_source: Array, spread: Array, scale: float) -> bool:
    """Whether an artifact is about as near to the truth as a source that is much nearer than the spread."""
    luck = _MUCH_NEARER * max(1.0, _NO_LUCK / max(error.size, 1))
    if _largest(spread) <= luck * _largest(of_source):
        return True
    return _largest(error) <= _AS_NEAR * _largest(of_source) + _OF_THE_SCALE * scale


def _largest(value: Array) -> float:
    finite = np.abs(value[np.isfinite(value)])
    return float(finite.max(initial=0.0))
