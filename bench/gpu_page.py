"""The page of ``gpu.py``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
_NODE = re.compile(r"(an implementation|Provider type) for \S+ (node )?with (node )?name .*")
"""What differs from model to model in the reason of a failure, which is told once."""
END = "<!-- end of bench/gpu.py -->\n"
FORMS = ("float32", "float16", "bfloat16", "int8", "fp8")
EAGER = ("as it is", "TF32", "float16", "compiled")
HEAD = """# TensorRT's packages on a GPU

Written by `bench/gpu.py` from a run on {gpu}, with ONNX Runtime {onnxruntime} and PyTorch {torch} (both for
CUDA 13), on a machine with 16 cores. Every package of `--target tensorrt` is the zoo's model with a dynamic
batch, and `check_gpu.py` of the package ran it.

**What ran is ONNX Runtime's CUDA provider, not TensorRT**, but for the section on TensorRT 8.6 below. The libraries
of TensorRT 10 and 11 cannot be had from the package registries, and TensorRT-RTX 1.7.1 builds engines on that
machine but does not run them: "The engine cannot run on this GPU, which has compute capability 9.0. […] TensorRT-RTX
does not support this compute capability" (tried with engines for 8.0, 8.6, 8.9, 12.0, all of them, and the GPU at
hand, in float32, float16 and int8). So this page says what the packages' files compute on a GPU's arithmetic and how
fast ONNX Runtime is with them; integers and 8-bit floats run there as pairs around float kernels, which gains no
time. Nothing is known of the speed of TensorRT 10 and 11.

Of bfloat16 the CUDA provider lacks MaxPool and Less (a Clip becomes one), so that four of nine models do not
load; the CPU has nothing to run it with.

GRU and LSTM are compared by hand alone (`check_gpu.py` agrees on all 18 inputs for both in float32, and for the GRU in
int8): the GRU in float16 ends ONNX Runtime on the CPU by a segmentation fault.
"""
PARITY = """
## What the GPU computes
The greatest difference from what the export verified, over {vectors} inputs, {edges} of them edge inputs, as a share of
what `check_gpu.py` allows: 1 % of the output's greatest value (3 % of a model in float16, 4 % in bfloat16), or three
times what the model's own rounding to 8 bits changes where that is more. Bold is beyond it, with the inputs. *TF32* is
ONNX Runtime's default; without it products keep all bits of float32.
"""
TIMES = """
## What a call takes
Milliseconds, the median of up to 50 calls, inputs and outputs on the GPU. *Graph*: kernels recorded once and
replayed (ONNX Runtime's `enable_cuda_graph`). PyTorch is eager: *as it is* (TF32 in convolutions alone), with
TF32 everywhere, with the module in float16 (small BERT: autocast), and as it is behind `torch.compile` with
`reduce-overhead`. A dash was not run. *Ratio*: PyTorch as it is over the fastest of the package's forms.
"""


def page(found: Sequence[Row]) -> str:
    """Markdown."""
    models = list(dict.fromkeys(row["model"] for row in found if "model" in row))
    torch = next(row for row in found if row.get("runtime") == "PyTorch")
    cuda = next(row for row in found if row.get("runtime") == "CUDA")
    checked = {row["key"]: row["vectors"] for row in found if row.get("runtime") == "CUDA" and row["batch"] == 1}
    total = sum(checked.values())
    head = HEAD.format(gpu=torch["gpu"], onnxruntime=cuda["version"], torch=torch["version"])
    parity = PARITY.format(vectors=total, edges=total - 3 * len(checked))
    parts = [head, parity, _parity(found, models), _failed(found)]
    for batch in (1, 64):
        parts += [TIMES if batch == 1 else "", f"\n### Batch {batch}\n", _times(found, models, batch)]
    return "\n".join(part for part in parts if part).replace("\n\n\n", "\n\n") + "\n"


def _parity(found: Sequence[Row], models: Sequence[str]) -> str:
    columns = [(form, way) for form in FORMS for way in ("CUDA", "CUDA, no TF32")]
    used = [each for each in columns if any(_at(found, model, each[0], each[1], 1) for model in models)]
    head = ["model", *(f"{form}{', TF32' if way == 'CUDA' else ''}" for form, way in used)]
    lines = []
    for model in models:
        rows = [_at(found, model, form, way, 1) for form, way in used]
        lines.append([model, *(_share(row) for row in rows)])
    return _table(head, lines)


def _share(row: Row | None) -> str:
    if row is None:
        return "–"
    share = row["share_of_allowed"]
    text = "no number" if share is None else f"{share:.2g}"
    return f"**{text}** ({', '.join(row['differ'])})" if row["differ"] else text


def _failed(found: Sequence[Row]) -> str:
    """The tasks that failed, by their reason."""
    reasons = dict[str, list[str]]()
    for row in found:
        if "failed" in row:
            reasons.setdefault(_NODE.sub(r"\1 of a node", row["failed"]), []).append(row["key"])
    lines = "\n".join(f"- {', '.join(keys)}: {reason}" for reason, keys in reasons.items())
    return f"\nDid not run:\n\n{lines}" if lines else ""


def _times(found: Sequence[Row], models: Sequence[str], batch: int) -> str:
    forms = [form for form in FORMS if any(_at(found, model, form, "CUDA", batch) for model in models)]
    head = ["model", *(f"PyTorch, {how}" for how in EAGER), "CPU, float32", *forms]
    head += [*(f"{form}, graph" for form in forms), "ratio"]
    lines = []
    for model in models:
        eager = [_ms(_at(found, model, how, "PyTorch", batch)) for how in EAGER]
        plain = [_ms(_at(found, model, form, "CUDA", batch)) for form in forms]
        graph = [_ms(_at(found, model, form, "CUDA graph", batch)) for form in forms]
        best = min((each for each in (*plain, *graph) if each is not None), default=None)
        ratio = f"{eager[0] / best:.1f}" if eager[0] and best else "–"
        cells = [*eager, _ms(_at(found, model, "float32", "CPU", batch)), *plain, *graph]
        lines.append([model, *("–" if each is None else f"{each:.2f}" for each in cells), ratio])
    return _table(head, lines)


def _ms(row: Row | None) -> float | None:
    return None if row is None else row["ms"]


def _at(found: Iterable[Row], model: str, form: str, runtime: str, batch: int) -> Row | None:
    wanted = {"model": model, "form": form, "runtime": runtime, "batch": batch}
    return next((row for row in found if all(row.get(key) == value for key, value in wanted.items())), None)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))
