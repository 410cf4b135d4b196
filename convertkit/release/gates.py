"""Limits that a cell of a release has to keep, each judged on its report; what cannot be judged is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convertkit.references import closest

Report = Mapping[str, Any]
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
ESTIMATE_GATE = "latency_estimate_to_baseline"
_DEVICES = "a table of devices such as { phone = 0.5 }"
_TRANSPOSES = frozenset({"transpose"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate of one cell: what was found and what is allowed, as numbers or words; whether that passes.

    ``passed`` is None where the gate could not be judged, which ``sentence`` explains and which fails the cell.
    """

    gate: str
    limit: Any
    found: Any
    passed: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What gates are judged on: a cell's report, its sizes, and the same of the cell of the baseline.

    ``memory_bytes`` is the most that it takes to load and to run, None where that is not known.
    ``ratio`` are the quartiles of this artifact's latency over the baseline's, taken in turns, and ``doubt`` says why
    the baseline does not tell.  ``baseline_estimates`` are milliseconds of the baseline's file by device, by the cost
    tables of now: those of its own release may have been others.
    """

    report: Report
    size_bytes: int
    baseline: Report | None = None
    baseline_bytes: int | None = None
    ratio: tuple[float, float, float] | None = None
    doubt: str = "the recipe names no baseline"
    memory_bytes: int | None = None
    baseline_estimates: Mapping[str, float] = field(default_factory=dict)


class CannotTell(Exception):
    """Why a gate cannot be judged."""


Found = tuple[Any, bool, str]
"""What was found, whether that passes, and the sentence."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A kind of limit: ``kind`` is what its value is, ``summary`` what it says.

    ``lossy`` gates compare with float32: of a table for many cells they are for the cells of other precisions.
    """

    kind: str
    summary: str
    judge: Callable[[Any, Evidence], Found]
    lossy: bool = False


def judged(limits: Mapping[str, Any], evidence: Evidence) -> tuple[Verdict, ...]:
    """The verdict of each gate, in the order in which they are declared."""
    return tuple(_judged(name, limits[name], evidence) for name in GATES if name in limits)


def _judged(name: str, limit: Any, evidence: Evidence) -> Verdict:
    try:
        found, passed, sentence = GATES[name].judge(limit, evidence)
    except CannotTell as reason:
        return Verdict(name, limit, None, None, f"{name} cannot be judged: {reason}")
    return Verdict(name, limit, found, passed, f"{name}: {sentence}")


def misfits(limits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The gates whose limit is of another kind than they take, each with a sentence; False takes a gate away."""
    for name, limit in limits.items():
        if limit is not False and not _KINDS[GATES[name].kind](limit):
            yield name, f"gate {name} = {limit!r}: expected {GATES[name].kind}"


def bytes_of(text: str | int) -> int:
    """Bytes of ``500kB``, ``1.5 MiB`` or a plain number; ``ValueError`` for anything else."""
    found = _SIZE.fullmatch(str(text).strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a size such as 2MB")
    return int(float(found[1]) * _UNITS[found[2]])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _is_share(value: Any) -> bool:
    return _is_number(value) and value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_size(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and bytes_of(value) > 0
    except ValueError:
        return False


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _are_ratios(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_number, value.values()))


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "a number": _is_number,
    "a share from 0 to 1": _is_share,
    "a whole number": _is_count,
    "a size such as 2MB": _is_size,
    "a list of names": _are_names,
    _DEVICES: _are_ratios,
}


def _part(report: Report, name: str, why: str) -> Mapping[str, Any]:
    part = report.get(name)
    if part is None:
        raise CannotTell(why)
    found: Mapping[str, Any] = part
    return found


def _max_drop(limit: Any, evidence: Evidence) -> Found:
    found = _part(evidence.report, "evaluation", "the cell has no eval with labelled samples")
    drop = float(found["drop"])
    moved = f"{found['metric']} {found['before']:.4g} → {found['after']:.4g}"
    return drop, bool(found["passed"]), f"{moved}, a loss of {drop:.3g}, allowed {limit:g}"


def _agreement(limit: Any, evidence: Evidence) -> Found:
    share = _part(evidence.report, "quality", _NO_SAMPLES)["agreement"]
    if share is None:
        raise CannotTell("no output ranks classes")
    return share, share >= limit, f"{share:.1%} of the samples have the same answer as float32, least {limit:.1%}"


def _snr(limit: Any, evidence: Evidence) -> Found:
    found = float(_part(evidence.report, "quality", _NO_SAMPLES)["snr_db"])
    return found, found >= limit, f"{found:.1f} dB signal over noise, least {limit:g} dB"


_NO_SAMPLES = "the cell has no samples (calib or eval) to compare with float32 on"
_NO_TIMES = "latency is not measured for this target here, as another machine will run it"


def _size(limit: Any, evidence: Evidence) -> Found:
    return evidence.size_bytes, evidence.size_bytes <= bytes_of(limit), f"{evidence.size_bytes} bytes, at most {limit}"


def _peak_memory(limit: Any, evidence: Evidence) -> Found:
    found = evidence.memory_bytes
    if found is None:
        raise CannotTell("memory is not measured for this target here")
    return found, found <= bytes_of(limit), f"{found} bytes at the peak, at most {limit}"


def _latency_ms(limit: Any, evidence: Evidence) -> Found:
    found = _part(evidence.report, "latency", _NO_TIMES)["artifact_ms"]
    return found, found <= limit, f"{found:.3g} ms, at most {limit:g} ms"


def _latency_ratio(limit: Any, evidence: Evidence) -> Found:
    found = _part(evidence.report, "latency", _NO_TIMES)
    if found["speedup"] is None:
        raise CannotTell("latency was not measured beside float32's")
    return _ratio(1 / found["speedup"], 1 / found["spread"][1], limit, "float32")


def _ratio(middle: float, low: float, limit: float, other: str) -> Found:
    """A ratio of times fails where three quarters of the pairs lie above the limit: single slow calls are noise."""
    return (
        middle,
        low <= limit,
        f"{middle:.3g} × the latency of {other} (first quartile {low:.3g}), at most {limit:g} ×",
    )


def _latency_estimate(limit: Any, evidence: Evidence) -> Found:
    estimates = _estimates(limit, evidence)
    plain = {device: each["float32_ms"] for device, each in estimates.items()}
    if None in plain.values():
        raise CannotTell("there is no float32 form to estimate beside it")
    return _estimated({device: estimates[device]["ms"] / plain[device] for device in limit}, limit, "float32's")


def _latency_estimate_to_baseline(limit: Any, evidence: Evidence) -> Found:
    _baseline(evidence)
    estimates, before = _estimates(limit, evidence), evidence.baseline_estimates
    if not before:
        raise CannotTell("the baseline's file cannot be estimated")
    return _estimated({device: estimates[device]["ms"] / before[device] for device in limit}, limit, "the baseline's")


def _estimates(limit: Mapping[str, float], evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """What the report estimates for the devices of ``limit``."""
    told = _part(evidence.report, "estimates", "the target has no cost tables of devices")
    if told["lacking"]:
        raise CannotTell(told["lacking"])
    found = {each["device"]: each for each in told["devices"]}
    for device in limit:
        if device not in found:
            like = closest(device, tuple(found))
            raise CannotTell(f"no device is called {device}{like}; there are {', '.join(found)}")
    return {device: found[device] for device in limit}


def _estimated(ratios: Mapping[str, float], limit: Mapping[str, float], other: str) -> Found:
    """Estimates have no noise: what is above its limit fails."""
    told = "; ".join(
        f"{ratio:.3g} × {other} estimate for {device}, at most {limit[device]:g} ×" for device, ratio in ratios.items()
    )
    return dict(ratios), all(ratio <= limit[device] for device, ratio in ratios.items()), told


def _baseline(evidence: Evidence) -> Report:
    if evidence.baseline is None:
        raise CannotTell(evidence.doubt)
    return evidence.baseline


def _latency_to_baseline(limit: Any, evidence: Evidence) -> Found:
    _baseline(evidence)
    if evidence.ratio is None:
        raise CannotTell(_NO_TIMES)
    return _ratio(evidence.ratio[1], evidence.ratio[0], limit, "the baseline")


def _size_to_baseline(limit: Any, evidence: Evidence) -> Found:
    _baseline(evidence)
    assert evidence.baseline_bytes
    ratio = evidence.size_bytes / evidence.baseline_bytes
    return ratio, ratio <= limit, f"{ratio:.3g} × the size of the baseline, at most {limit:g} ×"


def _drop_to_baseline(limit: Any, evidence: Evidence) -> Found:
    old = _part(_baseline(evidence), "evaluation", "the baseline was not evaluated")
    new = _part(evidence.report, "evaluation", "the cell has no eval with labelled samples")
    data = [(each["data"]["evaluation"] or {}).get("sha256") for each in (_baseline(evidence), evidence.report)]
    if old["metric"] != new["metric"] or data[0] != data[1]:
        raise CannotTell("the baseline was evaluated with another metric or on other samples")
    drop = _lost(new["metric"], old["after"], new["after"])
    return drop, drop <= limit, f"{new['metric']} {old['after']:.4g} → {new['after']:.4g}, allowed loss {limit:g}"


def _lost(metric: str, before: float, after: float) -> float:
    """As ``--max-drop`` counts: percent of an error, points of anything else."""
    if metric == "mse":
        return 100 * (after / before - 1) if before else (0.0 if after == 0 else float("inf"))
    return before - after


def _operators(limit: Sequence[str], evidence: Evidence) -> Found:
    allowed = {name.lower() for name in limit}
    others = sorted({each["kind"] for each in _listed(evidence) if each["kind"].lower() not in allowed})
    told = f"not allowed: {', '.join(others)}" if others else "all operators are allowed"
    return others, not others, told


def _transposes(limit: Any, evidence: Evidence) -> Found:
    found = [each["name"] for each in _listed(evidence) if each["kind"].lower() in _TRANSPOSES]
    named = f": {', '.join(found[:3])}" if found else ""
    return len(found), len(found) <= limit, f"{len(found)} transposes, at most {limit}{named}"


def _listed(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    operators: Sequence[Mapping[str, Any]] = evidence.report.get("operators") or ()
    if not operators:
        raise CannotTell("the target does not list the operators of what it delivers")
    return operators


GATES: Mapping[str, Gate] = {
    "max_drop": Gate("a number", "Points of the metric that may be lost; needs eval.", _max_drop),
    "agreement": Gate("a share from 0 to 1", "Least share of samples with float32's answer.", _agreement, lossy=True),
    "snr_db": Gate("a number", "Least signal over noise against the source, in dB.", _snr, lossy=True),
    "size": Gate("a size such as 2MB", "Largest artifact.", _size),
    "peak_memory": Gate("a size such as 2MB", "Most memory for loading it and a call.", _peak_memory),
    "latency_ms": Gate("a number", "Longest median call, in milliseconds.", _latency_ms),
    "latency_ratio": Gate("a number", "Largest ratio of latency to float32's.", _latency_ratio, lossy=True),
    "latency_to_baseline": Gate("a number", "Largest ratio of latency to the baseline's.", _latency_to_baseline),
    "latency_estimate": Gate(
        _DEVICES, "By device, largest ratio of estimated latency to float32's.", _latency_estimate, lossy=True
    ),
    ESTIMATE_GATE: Gate(
        _DEVICES, "By device, largest ratio of estimated latency to the baseline's.", _latency_estimate_to_baseline
    ),
    "size_to_baseline": Gate("a number", "Largest ratio of size to the baseline's.", _size_to_baseline),
    "drop_to_baseline": Gate("a number", "Points of the metric lost against the baseline.", _drop_to_baseline),
    "operators": Gate("a list of names", "Operators that the artifact may have.", _operators),
    "transposes": Gate("a whole number", "Most transposes that may remain.", _transposes),
}
"""Every gate by its key, in the order in which they are told."""
