"""The package's README: what lies in it, how the engine is built, how to see that it computes the same."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass

from convertkit.targets.tensorrt.constraints import SPARSE
from convertkit.targets.tensorrt.golden import Golden
from convertkit.targets.tensorrt.rtx import Engine

CHECK = "check_gpu.py"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text tells.  ``line`` is trtexec's, empty where sizes are missing.

    ``missing`` are the dynamic dimensions without sizes, ``sparse`` how many weights are 2:4,
    ``unsupported`` the nodes that TensorRT's parser does not take, with the reasons, ``engine`` is TensorRT-RTX's,
    ``narrowed`` the inputs and outputs of int64, which TensorRT 8 has as int32.
    """

    at_least: str
    compute_capability: str
    missing: tuple[str, ...]
    line: str
    sparse: int
    golden: Golden | None
    unsupported: tuple[str, ...]
    engine: Engine | None = None
    narrowed: tuple[str, ...] = ()


def readme(facts: Facts) -> str:
    """Markdown."""
    parts = (_files(facts), _unsupported(facts), _build(facts), _rtx(facts.engine), _check(facts), _notes(facts))
    return "\n".join(part for part in parts if part)


def _files(facts: Facts) -> str:
    golden = f"""| `golden/` | inputs and what they give, in Polygraphy's JSON; edge inputs |
| `{CHECK}` | runs the model on the GPU, compares, and measures |
"""
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
{golden if facts.golden else ""}{engine}
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
    if facts.golden is None:
        return ""
    atol = " ".join(shlex.quote(f"{name}:{value:g}") for name, value in facts.golden.atol.items())
    return f"""## Check
The golden vectors are results of {facts.golden.runtime}. Polygraphy compares the engine's with them:

    polygraphy run model.engine --trt --load-inputs golden/inputs.json --load-outputs golden/outputs.json \\
        --rtol 0 --atol {atol}

Each value may differ by {100 * facts.golden.share:.0f} % of its output's greatest one, or by three times what the
model's own rounding to 8 or 16 bits changes (of float32: that of products in TF32), where that is more; one
that 8-bit integers make, by two of their steps more. Whole numbers (indices, labels) have to be equal.
{_undecided(facts.golden)}
    python {CHECK}

compares edge inputs, too (zeros, tiny and constant values, ...), each by the size of its own result, and tells what a
call takes: in TensorRT where `model.engine` is there, in ONNX Runtime on the GPU (`pip install onnxruntime-gpu`) and on
the CPU. `--batch 64` measures other sizes. It ends with 0 where all that ran agree, 1 where one differs or fails,
2 where nothing ran on the GPU.
{_left_out(facts.golden)}"""


def _undecided(golden: Golden) -> str:
    """A sentence about integer outputs that rounding decides."""
    tolerances = [golden.atol, *(edge.atol for edge in golden.edges)]
    names = sorted({name for each in tolerances for name, most in each.items() if math.isinf(most)})
    if not names:
        return ""
    return f"Rounding decides them in {', '.join(names)} for some inputs; these are not compared.\n"


def _left_out(golden: Golden) -> str:
    if not golden.left_out:
        return ""
    rows = "\n".join(f"- {each.name}: {each.reason}" for each in golden.left_out)
    return f"\nEdge inputs that are not in `golden/edges.npz`:\n{rows}\n"


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
{sparse if facts.sparse else ""}{_narrowed(facts)}"""


def _narrowed(facts: Facts) -> str:
    if not facts.narrowed:
        return ""
    return f"- TensorRT 8 has no int64: in its engine {', '.join(facts.narrowed)} are int32.\n"
