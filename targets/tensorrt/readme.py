"""The package's README: what lies in it, how the engine is built, how to see that it computes the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from convertkit.targets.tensorrt.constraints import SPARSE
from convertkit.targets.tensorrt.rtx import Engine


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text tells.  ``line`` is trtexec's, empty where sizes are missing; ``atol`` allows by output,
    ``is_short`` says that the model computes in bfloat16.

    ``missing`` are the dynamic dimensions without sizes, ``sparse`` and ``vectors`` how many weights and calls there
    are, ``unsupported`` the nodes that TensorRT's parser does not take, with the reasons, ``engine`` is TensorRT-RTX's.
    """

    at_least: str
    compute_capability: str
    missing: tuple[str, ...]
    line: str
    sparse: int
    vectors: int
    atol: Mapping[str, float]
    is_short: bool
    runtime: str
    unsupported: tuple[str, ...]
    engine: Engine | None = None


def readme(facts: Facts) -> str:
    """Markdown."""
    parts = (_files(facts), _unsupported(facts), _build(facts), _rtx(facts.engine), _check(facts), _notes(facts))
    return "\n".join(part for part in parts if part)


def _files(facts: Facts) -> str:
    golden = "| `golden/` | inputs and what they give, in Polygraphy's JSON |\n" if facts.vectors else ""
    line = "| `trtexec.txt` | the line of trtexec |\n" if facts.line else ""
    built = facts.engine
    engine = f"| `{built.file}` | an engine for TensorRT-RTX, built and not executed |\n" if built else ""
    return f"""# Model for TensorRT

| file | what |
|---|---|
| `model.onnx` | the model; its types and its QuantizeLinear pairs are what the engine computes in |
| `build_engine.py` | builds the engine on the machine with the GPU |
{line}| `constraints.json` | what the model needs: TensorRT, GPU, sizes; digests |
| `capability.json` | of each node, whether TensorRT's parser takes it |
{golden}{engine}
Needs TensorRT {facts.at_least} or later and a GPU of compute capability {facts.compute_capability} or later.
"""


def _unsupported(facts: Facts) -> str:
    if not facts.unsupported:
        return ""
    nodes = "\n".join(f"- {each}" for each in facts.unsupported)
    return f"""## What TensorRT's parser does not take
{nodes}

These nodes need a plugin: `build_engine.py --plugin FILE`.
"""


def _build(facts: Facts) -> str:
    words = "".join(f" --size {shlex.quote(f'{name}=MIN,OPT,MAX')}" for name in facts.missing)
    tool = "\nOr with trtexec:\n\n" + "".join(f"    {row}\n" for row in facts.line.splitlines()) if facts.line else ""
    sizes = f"""
Sizes of {", ".join(facts.missing)} are yours to choose; `--tensorrt-profile` at the export writes them down.
"""
    return f"""## Build
    python build_engine.py{words}
{sizes if facts.missing else ""}{tool}"""


def _rtx(engine: Engine | None) -> str:
    if engine is None:
        return ""
    places = ", ".join(f"{sm // 10}.{sm % 10}" for sm in engine.sms)
    return f"""## TensorRT-RTX
`{engine.file}` was built by TensorRT-RTX {engine.version} for compute capability {places}, without a GPU.
It was not executed.
TensorRT-RTX of the same version runs it on GPUs of these capabilities, not TensorRT. Where sizes are
dynamic, another build of the same model has another sha256.
"""


def _check(facts: Facts) -> str:
    if not facts.vectors:
        return ""
    atol = " ".join(shlex.quote(f"{name}:{value:g}") for name, value in facts.atol.items())
    more = "or by twice what rounding changes" if facts.is_short else "and an integer output's by two steps"
    return f"""## Check
The golden vectors are results of {facts.runtime}.
Polygraphy compares the engine's with them:

    polygraphy run model.engine --trt --load-inputs golden/inputs.json --load-outputs golden/outputs.json \\
        --rtol 0 --atol {atol}

Each value may differ by {"4 %" if facts.is_short else "1 %"} of its output's greatest one, {more}.
"""


def _notes(facts: Facts) -> str:
    sparse = f"""- {facts.sparse} weights are 2:4 sparse: sparse kernels are on, which GPUs from {SPARSE} on have.
"""
    return f"""## Notes
- An engine runs in the release of TensorRT and on the kind of GPU that built it. `--version-compatible` lets later
  releases run it, `--hardware-compatible ampere+` all GPUs of compute capability 8.0 and more; either may cost speed.
  trtexec calls them `--versionCompatible` and `--hardwareCompatibilityLevel=ampere+`.
- `--timing-cache timing.cache` (trtexec: `--timingCacheFile=timing.cache`) keeps what kernels took, for the next build
  with the same release on the same kind of GPU.
- Products of float32 use TF32, which keeps 10 bits; `--no-tf32` (trtexec: `--noTF32`) keeps all.
{sparse if facts.sparse else ""}"""
