"""The README of what ships: the artifact, its inputs and outputs by place, and who reads it."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit.ports_table import ports_table

_PRODUCTS = {
    "highest": "`HIGHEST`: a compiler for\nGPUs or TPUs keeps all bits of float32",
    "default": "`DEFAULT`: a compiler for\nGPUs or TPUs may compute them in TF32 or bfloat16, which was not compared",
}


def readme(artifact: Artifact, version: str, precision: str) -> str:
    """Markdown."""
    return f"""# Model as StableHLO

`model.mlirbc` is a portable artifact of StableHLO {version}, with the weights. Its function is `main`; inputs and
outputs are known by their places.

Products of float32 (convolutions, matrix products) have StableHLO's precision {_PRODUCTS[precision]}.

{ports_table("Inputs", artifact.inputs)}
{ports_table("Outputs", artifact.outputs)}
## Who reads it
- **IREE**: `iree-compile --iree-input-type=stablehlo model.mlirbc`
- **StableHLO's tools**: `stablehlo-translate --deserialize model.mlirbc` writes the text
- **XLA**, through any of its frontends that takes serialized StableHLO; it executed this file, and the report tells
  what it was compared with
"""
