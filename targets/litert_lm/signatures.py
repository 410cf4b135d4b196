"""One TFLite file of several signatures over one set of weights: prompts of some lengths, and decoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convertkit.errors import Unsupported
from convertkit.onnx.load import load_own
from convertkit.targets.litert_lm.in_place import Shape, in_place
from convertkit.targets.tflite.compile import METADATA, Compiled, compile_model
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.origins import folded
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model

PREFILL, DECODE = "prefill_", "decode"
_LEAST = 128
"""Places of any cache: as many as the inputs have by which every target is verified."""


@dataclass(frozen=True, slots=True)
class Joined:
    """All signatures, and the cache that they share."""

    program: Program
    signatures: tuple[Signature, ...]
    shape: Shape

    def write(self, path: Path) -> None:
        """Write the model file; equal weights are stored once."""
        untold = [["" for each in graph.operations for _ in each.outputs] for graph in self.program.subgraphs]
        notes = {METADATA: json.dumps({"inputs": {}, "outputs": {}, **folded(untold)}).encode()}
        write_model(self.program, self.signatures, path, metadata=notes, description="convertkit")


def joined(source: Path, rows: tuple[int, ...], context: int, options: Options) -> Joined:
    """Compile the graph once for each length of a prompt and once for decoding.

    The cache has ``context`` places and as many more as the longest signature for prompts writes beyond the last one.
    """
    length = max(context + max(rows) - 1, _LEAST)
    whole, signatures, shape = Program(), [], None
    for count in (*rows, None):
        model = load_own(source)
        shape, names = in_place(model, count or 1, length, logits=count is None)
        compiled = compile_model(model, options)
        key = DECODE if count is None else f"{PREFILL}{count}"
        signatures.append(_signature(compiled, names, key, len(whole.subgraphs)))
        _append(whole, compiled.program, key)
    assert shape is not None, "there is the one that decodes"
    return Joined(whole, tuple(signatures), shape)


def _signature(compiled: Compiled, names: tuple[str, ...], key: str, place: int) -> Signature:
    outputs: Mapping[str, Tensor] = dict(zip(names, compiled.signature.outputs.values(), strict=True))
    return Signature(compiled.signature.inputs, outputs, key, place)


def _append(whole: Program, part: Program, key: str) -> None:
    """A decoder has no loops and no branches, whose bodies would be further subgraphs."""
    if len(part.subgraphs) > 1:
        raise Unsupported("the decoder has branches or loops, which a package of several signatures has no room for")
    part.subgraphs[0].name = key
    whole.subgraphs.append(part.subgraphs[0])
    whole.names.update(part.names)
