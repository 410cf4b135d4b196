"""What the command line prints as its result, on stdout, and the words for sizes and comparisons."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convertkit.colour import painted
from convertkit.text import NOT_VERIFIED, aligned

if TYPE_CHECKING:
    from convertkit.parity.values import ParityReport, TensorDiff
    from convertkit.result import Result

_LARGEST_PERCENT = 0.5
"""Larger shares are told as factors."""


def print_results(results: Sequence[Result], *, quiet: bool = False) -> None:
    """What was delivered, on stdout; each artifact's path as a line of its own, and nothing else with ``quiet``.

    Where the same terminal has shown every step already, the steps are not shown again.
    """
    seen = sys.stdout.isatty() and sys.stderr.isatty()
    for number, result in enumerate(results):
        if not quiet:
            _print_result(result, steps=not seen)
        print(painted(str(result.artifact.path), "path", sys.stdout))
        if not quiet and seen and number + 1 < len(results):
            print()


def _print_result(result: Result, *, steps: bool) -> None:
    report = result.report
    became = report["effective"] or {"requested": "", "effective": ""}
    other = became["requested"] != became["effective"]
    print(painted(headline(report), "warning", sys.stdout) if other else headline(report))
    if steps:
        for line in aligned(_step_rows(report), right=(1, 2)):
            print(line)
    for line in (*_facts(report), *_interface(report)):
        print(painted(line, "warning", sys.stdout) if "SLOWER" in line or "LOW" in line else line)
    for note in report["notes"]:
        print(f"note: {note}")


def _step_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("step", "seconds", "bytes", "versus previous", "versus source")]
    for step in report["steps"]:
        parity = step["parity"]
        rows.append(
            (
                step["stage"],
                f"{step['seconds']:.2f}",
                f"{step['artifact']['bytes']:,}",
                _reported(parity["versus_previous"]),
                _reported(parity["versus_source"]),
            )
        )
    return rows


def headline(report: Mapping[str, Any]) -> str:
    """The result in one line: the target, and what the precision became."""
    became = report["effective"]
    return f"{report['target']}  {became['sentence'] if became is not None else report['precision']}"


def parity_text(report: ParityReport) -> str:
    """The worst output of a comparison in a few words."""
    if report.unproven:
        return f"not verified: {report.unproven}"
    worst = report.worst
    return "nothing to compare" if worst is None else diff_text(worst)


def diff_text(diff: TensorDiff) -> str:
    """One output's difference in the words that fit it: equal, LSB or relative, and SNR."""
    return _words(diff.max_abs, diff.relative, diff.snr_db, diff.lsb, diff.mismatch)


def _words(max_abs: Any, relative: Any, snr_db: Any, lsb: Any, mismatch: str) -> str:
    if mismatch:
        return mismatch
    if not max_abs:
        return "equal"
    if lsb is not None:
        return f"{float(lsb):.2g} LSB, {float(snr_db):.1f} dB"
    if float(snr_db) < 60:
        return f"{float(snr_db):.1f} dB"
    return f"max rel. error {float(relative):.1e}"


def _reported(parity: Mapping[str, Any]) -> str:
    worst = max(parity["tensors"], key=lambda tensor: float(tensor["relative"]), default=None)
    if worst is None:
        return "nothing to compare"
    return _words(worst["max_abs"], worst["relative"], worst["snr_db"], worst["lsb"], worst["mismatch"])


def _facts(report: Mapping[str, Any]) -> Iterator[str]:
    size = report["steps"][-1]["artifact"]["bytes"]
    first = report["steps"][0]["artifact"]["bytes"]
    yield f"size      {size:,} bytes, {100 * size / first:.1f} % of the ONNX that it began as ({first:,})"
    if report["quality"] is not None:
        yield f"quality   {quality_text(report['quality'])}"
    if report["latency"] is not None:
        yield f"latency   {latency_text(report['latency'])}"
    yield from (f"estimated {line}" for line in estimate_lines(report.get("estimates")))
    if report.get("providers"):
        yield f"providers {providers_text(report['providers'])}"
    if report["evaluation"] is not None:
        yield _evaluation_text(report["evaluation"])


def _interface(report: Mapping[str, Any]) -> Iterator[str]:
    """What an app gives and gets, and what verified the artifact."""
    ports = report["interface"] or {"inputs": (), "outputs": ()}
    for role in ("inputs", "outputs"):
        for port in ports[role]:
            yield f"{role[:-1]:<9} {port['name']}: {port['sentence']}"
    title = "run by" if any(note.startswith(NOT_VERIFIED) for note in report["notes"]) else "verified"
    yield f"{title:<9} {verified_text(report)}"


def verified_text(report: Mapping[str, Any]) -> str:
    """Which programs computed the two sides of the last comparison; TensorRT's own does not run here.

    A runtime that is called as the target is the target's own, although the device is another; a simulator of the
    device is named as one.
    """
    if not report["steps"]:
        return "nothing"
    final = report["steps"][-1]["artifact"]
    told = f"{final['path']} in {final['runtime']}, the source in {report['source']['runtime']}"
    if report.get("execution") == "simulated":
        return f"{told}; simulated, not run on the device"
    own = report["runs_here"] or final["runtime"].startswith(f"{report['target']} ")
    return told if own else f"{told}; not by {report['target']}, which does not run here"


def quality_text(quality: Mapping[str, Any]) -> str:
    """What the artifact keeps of the source's answers, and on how many samples."""
    level = "equal" if quality["snr_db"] == "inf" else f"{float(quality['snr_db']):.1f} dB"
    low = "" if quality["low_db"] == "inf" else f" (5th percentile {float(quality['low_db']):.1f} dB)"
    same = quality["agreement"]
    agreed = "" if same is None else f", same class for {100 * same:.4g} %"
    weak = "; LOW, look at the report before it ships" if quality["weak"] else ""
    return f"{level}{low}{agreed} on {quality['where']}{weak}"


def latency_text(latency: Mapping[str, Any]) -> str:
    """Milliseconds of a call; beside float32, which is faster and what to do about it."""
    ours = f"{latency['artifact_ms']:.3f} ms"
    if latency["float32_ms"] is None:
        return f"{ours} a call here"
    way_out = "; for size alone that may do, else leave the precision flag out" if latency["slower"] else ""
    return f"{ours}, float32 {latency['float32_ms']:.3f} ms: {latency['verdict']}{way_out}"


def providers_text(shares: Sequence[Mapping[str, Any]]) -> str:
    """How many nodes each execution provider would take: those that take the same number stand together."""
    by_count = dict[int, list[str]]()
    for each in shares:
        by_count.setdefault(each["nodes"], []).append(each["provider"])
    shown = {0: "no node", shares[0]["of_nodes"]: f"all {shares[0]['of_nodes']} nodes"}
    told = [
        f"{shown.get(count, f'{count} nodes')} in {', '.join(by_count[count])}"
        for count in sorted(by_count, reverse=True)
    ]
    return f"{'; '.join(told)} (by their lists, not run)"


def estimate_lines(estimates: Mapping[str, Any] | None) -> Iterator[str]:
    """What is shown of devices that are not here, a line for those of one error; none where nothing was estimated."""
    shown = [each for each in (estimates or {"devices": ()})["devices"] if each["shown"]]
    by_trust = dict[str, list[str]]()
    for each in shown:
        beside = "" if each["float32_ms"] is None else f", float32 {each['float32_ms']:.3g} ms"
        told = f"{each['device']} {each['ms']:.3g} ms{beside}{resources_text(each)}"
        by_trust.setdefault(trust_text(each), []).append(told)
    for trust, estimated in by_trust.items():
        yield f"{'; '.join(estimated)} ({trust})"


def resources_text(estimate: Mapping[str, Any]) -> str:
    """Cycles and memory where a compiler tells them, each behind a comma."""
    cycles = estimate.get("cycles")
    told = [] if cycles is None else [f"{cycles:,} cycles"]
    told += [f"{name} {count:,} bytes" for name, count in estimate.get("memory_bytes", {}).items()]
    return "".join(f", {each}" for each in told)


def trust_text(estimate: Mapping[str, Any]) -> str:
    """Who estimated, and how far that can be trusted."""
    by = estimate.get("by", "")
    measured = estimate.get("measured", "")
    if measured:
        return f"by cost tables measured on {measured}"
    return f"{by}'s estimate, not measured" if by else error_text(estimate["error"])


def error_text(error: Mapping[str, Any] | None) -> str:
    """How far an estimate of about this time can be trusted."""
    if error is None:
        return "by cost tables, error not known"
    first, last = error["from_ms"], error["to_ms"]
    times = f"{first:g} to {last:g} ms" if first and last else f"below {last:g} ms" if last else f"above {first:g} ms"
    median, worst = (_error(error[key]) for key in ("median", "worst"))
    return f"by cost tables; {times}: {median} off {error['beside']} in the median, at worst {worst}"


def _error(share: float) -> str:
    """In percent; what is more than half of it as a factor."""
    return f"{100 * share:.0f} %" if share <= _LARGEST_PERCENT else f"{1 + share:.2g} ×"


def _evaluation_text(evaluation: Mapping[str, Any]) -> str:
    unit = "%" if evaluation["metric"] == "mse" else "points"
    allowed = "" if evaluation["max_drop"] is None else f", allowed {evaluation['max_drop']:g}"
    change = float(evaluation["drop"])
    moved = f"drop {change:.2f}" if change >= 0 else f"gain {-change:.2f}"
    return (
        f"{evaluation['metric']:<9} {float(evaluation['before']):.2f} → {float(evaluation['after']):.2f} "
        f"on {evaluation['samples']} samples: {moved} {unit}{allowed}"
    )
