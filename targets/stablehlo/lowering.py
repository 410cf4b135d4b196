"""The worker that holds TensorFlow and jaxlib: writes portable artifacts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.stablehlo.compat import UNREADABLE, context
from convertkit.targets.tf_serving.file import Graph, read
from convertkit.targets.tf_serving.saved_model import Building
from convertkit.workers.held import brief
from convertkit.workers.process import Reply

VERSION = "1.0.0"
"""Of StableHLO: what every consumer since its first release reads."""
NAME = "model"
_PASSES = "builtin.module(inline,canonicalize,cse,symbol-dce,strip-debuginfo)"
"""Names of files of this machine are in the locations that TensorFlow writes."""
_PACKED = re.compile(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)+)i1>')
_PRODUCTS = frozenset({"stablehlo.convolution", "stablehlo.dot", "stablehlo.dot_general"})
_WAYS_OUT = ("--target onnxruntime", "--target iree")


class LoweringService:
    """Methods that take JSON-able parameters and arrays by name."""

    def lower(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Write ``artifact`` from the ``.tflite`` file ``model``; the value has its version, and kinds of operators.

        ``precision`` is that of StableHLO for both operands of products: ``highest`` or ``default``.
        """
        graphs = read(Path(params["model"]).read_bytes())
        try:
            text = _lowered(graphs)
        except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
            raise Unsupported(f"XLA does not take the model: {brief(error)}", ways_out=_WAYS_OUT) from error
        try:
            artifact, kinds = _portable(text, str(params["precision"]).upper())
        except UNREADABLE as error:
            reason = f"StableHLO {VERSION} cannot hold the model: {brief(error)}"
            raise Unsupported(reason, ways_out=_WAYS_OUT) from error
        Path(params["artifact"]).write_bytes(artifact)
        return Reply({"stablehlo": VERSION, "operators": kinds})


def _lowered(graphs: Sequence[Graph]) -> str:
    """StableHLO text of the main graph, which TensorFlow's bridge writes for its sizes."""
    main, building = graphs[0], Building(tf, graphs)
    names = [main.tensors[index].name for index in main.inputs]

    def program(*given: Any) -> list[Any]:
        found = building.main(dict(zip(names, given, strict=True)))
        return [found[main.tensors[index].name] for index in main.outputs]

    specs = [tf.TensorSpec(main.tensors[index].shape, main.tensors[index].dtype) for index in main.inputs]
    function = tf.function(program, input_signature=specs, autograph=False, jit_compile=True)
    text: str = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    return text


def _portable(text: str, precision: str) -> tuple[bytes, dict[str, int]]:
    """The same module without what speaks of this machine, as bytes, and its operators counted."""
    with context():
        module = ir.Module.parse(_PACKED.sub(_unpacked, text))
        for name in [_name(each) for each in module.operation.attributes]:
            if name.startswith("mhlo."):
                del module.operation.attributes[name]
        module.operation.attributes["sym_name"] = ir.StringAttr.get(NAME)
        PassManager.parse(_PASSES).run(module.operation)
        both = ir.ArrayAttr.get([ir.Attribute.parse(f"#stablehlo<precision {precision}>")] * 2)
        kinds = dict[str, int]()
        for each in _operations(module.operation):
            kinds[each.name] = kinds.get(each.name, 0) + 1
            if each.name in _PRODUCTS:
                each.attributes["precision_config"] = both
        return stablehlo.serialize_portable_artifact_str(str(module), VERSION), dict(sorted(kinds.items()))


def _unpacked(found: re.Match[str]) -> str:
    """A stored tensor of truths with a byte for each: TensorFlow's MLIR packs eight into one, JAX's does not."""
    data, sizes = bytes.fromhex(found[1]), found[2]
    count = math.prod(int(size) for size in sizes.split("x")[:-1])
    if len(data) == count:
        return found[0]
    truths = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
    return f'dense<"0x{truths.tobytes().hex().upper()}"> : tensor<{sizes}i1>'


def _name(attribute: Any) -> str:
    return str(getattr(attribute, "name", attribute))


def _operations(operation: Any) -> Iterator[Any]:
    """All within ``operation``, but functions and their ends."""
    for each in (each for region in operation.regions for block in region for each in block):
        if not each.operation.name.startswith("func."):
            yield each.operation
        yield from _operations(each.operation)
