"""``report.html``: one file that needs no network, drawn from what ``report.json`` says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from convertkit.findings.snippets import snippets
from convertkit.formatting import resources_text, trust_text, verified_text
from convertkit.report import charts, layers
from convertkit.report.compiled import BesideModules


def render(report: Mapping[str, Any]) -> str:
    """The page for one report that fulfils ``schema.json``; every text in it is escaped."""
    return page().render(
        report=report,
        pipeline=charts.pipeline(report),
        failure=failure(report["failure"]),
        verified=verified_text(report),
        snippets=_snippets(report),
        operators={"precisions": layers.precisions(report["operators"]), "charts": layers.charts(report, size)},
        estimates={
            "rows": layers.shown_devices(report),
            "timed": layers.timed_devices(report),
            "layers": layers.with_times(report),
        },
        depth=layers.depth(report["depth"]),
        final=report["steps"][-1] if report["steps"] else None,
        warnings=warnings(report),
        diagnoses=[
            _diagnosis(step) for step in report["steps"] if (step.get("diagnosis") or {}).keys() - {"transposes"}
        ],
        transposes=[row for step in report["steps"] for row in (step.get("diagnosis") or {}).get("transposes", ())],
        bars=charts.bars,
        total_s=sum(step["seconds"] + step["parity_seconds"] for step in report["steps"]),
    )


@cache
def page() -> jinja2.Template:
    """The compiled template, without parts that few pages have: compiling it takes longer than all else in a report."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("convertkit.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=BesideModules(Path(__file__).parent),
        optimized=False,  # folding what is constant in the template takes longer than it saves in one page
    )
    environment.filters.update(
        size=size,
        seconds=seconds,
        figure=figure,
        percent=percent,
        trust=trust_text,
        resources=resources_text,
        headline=charts.headline,
    )
    return environment.get_template("page.html")


def warnings(report: Mapping[str, Any]) -> list[str]:
    """Every warning and every failure of the comparisons, each named after its step, without repetition.

    What the page's failure says already is left out.
    """
    found = []
    for step in report["steps"]:
        for parity in step["parity"].values():
            sentences = [*parity.get("failures", ()), *parity.get("warnings", ()), parity.get("unproven", "")]
            fresh = [sentence for sentence in sentences if sentence and sentence not in report["failure"]]
            found += [f"{step['stage']}: {sentence}" for sentence in fresh]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended an export, and what may be tried."""

    sentence: str
    ways_out: tuple[str, ...]


def failure(text: str) -> Failure:
    """A failure's sentence, and its lines that begin with ``try``."""
    lines = text.splitlines()
    ways = [line.strip() for line in lines if line.startswith("  try ")]
    told = "\n".join(line for line in lines if not line.startswith("  try "))
    return Failure(told, tuple(way.removeprefix("try").strip() for way in ways))


def _snippets(report: Mapping[str, Any]) -> dict[str, str]:
    if not report["interface"] or not report["steps"]:
        return {}
    last = report["steps"][-1]
    return snippets(
        last["artifact"], report["interface"], last["options"].get("profile", {}), last["options"].get("release", "")
    )


def size(count: int) -> str:
    """Bytes for people: ``463 KB`` (1 KB = 1000 bytes)."""
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def seconds(value: float) -> str:
    """Seconds for people: ``42 ms`` or ``3.2 s``."""
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def figure(value: float | str | None, digits: int = 4) -> str:
    """A number with that many significant digits; ``∞`` and ``–`` for what is infinite or absent."""
    if value is None:
        return "–"
    exact = charts.number(value)
    if math.isinf(exact):
        return "∞" if exact > 0 else "−∞"
    if exact and (abs(exact) < 1e-3 or abs(exact) >= 1e5):
        return f"{exact:.2e}".replace("-", "−")
    return f"{exact:.{digits}g}".replace("-", "−")


def percent(share: float | str | None) -> str:
    """A share (0 to 1) in percent."""
    return "–" if share is None else f"{100 * charts.number(share):.2f} %"


def _diagnosis(step: Mapping[str, Any]) -> dict[str, Any]:
    found = step["diagnosis"]
    tensors = {tensor["name"]: tensor for tensor in found.get("tensors", ())}
    worst = [tensors[name] for name in found.get("worst", ())]
    return {
        "stage": step["stage"],
        "facts": _facts(found),
        "worst": [(tensor, charts.values(tensor)) for tensor in worst],
        "tensors": list(tensors.values()),
        "layers": found.get("layers", ()),
        "groups": found.get("groups", ()),
        "factors": found.get("factors", ()),
        "curve": charts.curve(found),
        "float": found.get("float")
        or dict.fromkeys(found.get("float32", ()), "float16 would overflow or does not exist"),
    }


def _facts(found: Mapping[str, Any]) -> list[str]:
    """What was decided, in a sentence each."""
    facts = []
    if "method" in found:
        ways = Counter(tensor.get("method", "") for tensor in found.get("tensors", ()))
        listed = ", ".join(f"{way} for {count}" for way, count in ways.most_common() if way)
        facts.append(f"ranges: {listed or found['method']}")
    if found.get("held_out") is not None:
        kept = found["held_out"]
        told = [f"on {kept['samples']} held-out samples: {figure(kept['snr_db'])} dB"]
        told.append(f"{figure(kept['snr_db_p5'])} dB at the 5th percentile of the samples")
        if kept.get("agreement") is not None:
            told.append(f"{percent(kept['agreement'])} agreement with float on the class")
        facts.append(", ".join(told))
    for key, text in (
        ("layers", "layers whose weights were fitted"),
        ("bias_corrected", "biases corrected"),
        ("equalized", "scales moved between layers"),
    ):
        if found.get(key):
            facts.append(f"{text}: {len(found[key])}")
    return facts
