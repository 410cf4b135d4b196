"""The page of docs/measurements about what servers' runtimes compute, from the rows of ``server_zoo.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
Rows = Mapping[tuple[str, str], Row]
ONNXRUNTIME = ("onnxruntime.float32", "onnxruntime.int8", "onnxruntime.w8", "onnxruntime.w4")
_STORED = """Where int8 has the bytes of w8, it stores integers and computes in float, too, as integers would
save less than the 30 % that convertkit asks for. Its products' integers keep a bound for
processors without VNNI that w8's need not, and may keep some decibels less."""
APART = 3.0
"""From so many dB on the median sample is told, too: a single loud one decides the sum over all."""
_OPENVINO = """8-bit weights (`--openvino-cpu vnni`). int8 without milliseconds is of a newer run: its time stands
[beside NNCF's](server-peers.md#openvino-int8)."""
OPENVINO = ("openvino.float32", "openvino.fp16", "openvino.int8")

_HEAD = """# Servers: ONNX Runtime, OpenVINO, TensorFlow Serving

Written by `bench/server_zoo.py`. The zoo's networks (random weights, so that SNR is a stress test) and trained models,
exported with defaults and calibrated on the same samples; outputs over the evaluation samples beside those of ONNX
Runtime on the source. *Error* is the largest difference over the largest value of the output, *dB* signal over noise of
all outputs, with the median sample's where that is 3 dB better. A dash was not run. Latency is a call's own processor
time on one thread, the least median of three turns; each runtime had a process of its own, both in turns. The machine
had other work, and its processor has VNNI.
[Real models](server-cases.md), [beside peers](server-peers.md).
"""


def page(rows: Rows) -> str:
    """The page in Markdown."""
    models = sorted({model for model, _ in rows})
    parts = [_HEAD]
    parts += _table("ONNX Runtime", models, ONNXRUNTIME, rows, _STORED)
    parts += _table("OpenVINO, CPU plugin", models, OPENVINO, rows, _OPENVINO)
    parts += _saved_models(models, rows)
    return "\n".join(parts)


def _table(title: str, models: list[str], forms: tuple[str, ...], rows: Rows, more: str = "") -> list[str]:
    heads = [form.split(".")[1] for form in forms]
    lines = [f"## {title}", "", *([more, ""] if more else []), f"| model | {' | '.join(heads)} |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    refusals = []
    for model in models:
        if not any((model, form) in rows for form in forms):
            continue
        lines.append(f"| {model} | {' | '.join(_cell(model, form, rows) for form in forms)} |")
        for form, head in zip(forms, heads, strict=True):
            if reason := rows.get((model, form), {}).get("refused"):
                refusals.append(f"- {model}, {head}: {reason}")
    return [*lines, "", *refusals, *([""] if refusals else [])]


def _cell(model: str, form: str, rows: Rows) -> str:
    row = rows.get((model, form))
    if row is None:
        return "–"
    if "refused" in row:
        return "refused"
    exact = form.endswith("float32")
    error = f"{row['relative_error']:.1e}" if exact else f"{row['snr_db']:.1f} dB"
    if not exact and row["snr_median_db"] - row["snr_db"] >= APART:
        error += f" (median {row['snr_median_db']:.1f})"
    accuracy = f", {row['top1']:.2f} %" if row.get("top1") is not None else ""
    ms = rows.get((model, "ms"), {}).get(form)
    return f"{error}{accuracy}, {row['bytes'] / 1000:,.0f} KB{'' if ms is None else f', {ms:.3g} ms'}"


def _saved_models(models: list[str], rows: Rows) -> list[str]:
    lines = [
        "## SavedModels",
        "",
        "Transposes that the graph has, beside those of the source, which has its channels first. No model has more",
        "than its source; what is left moves heads of attentions or is asked for by the model.",
        "",
        "| model | error | size | transposes, of the source's own | operators |",
        "|---|---|---|---|---|",
    ]
    for model in models:
        row = rows.get((model, "tf-serving.float32"))
        if row is None:
            continue
        if "refused" in row:
            lines.append(f"| {model} | refused: {row['refused']} | | | |")
            continue
        size = f"{row['bytes'] / 1000:,.0f} KB"
        turned = f"{row['transposes']}, {row['source_transposes']}"
        lines.append(f"| {model} | {row['relative_error']:.1e} | {size} | {turned} | {row['operators']} |")
    return [*lines, ""]
