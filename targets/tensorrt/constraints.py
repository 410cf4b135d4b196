"""``constraints.json``: what the model needs of TensorRT and of the GPU; ``build_engine.py`` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.onnx.specs import dtype_name
from convertkit.targets.tensorrt.capability import Capability
from convertkit.targets.tensorrt.older import RELEASE as OLDER
from convertkit.targets.tensorrt.parser import numbers, parsers
from convertkit.targets.tensorrt.shapes import Range

_COMPUTE = {"float32": "7.5", "float16": "7.5", "bfloat16": "8.0", "int8": "7.5", "int4": "8.0", "float8_e4m3fn": "8.9"}
"""By type, the least compute capability.  Sources: the support matrices of TensorRT 10.1 and TensorRT-RTX 1.5."""
_COMPUTE_OLDER = {"float32": "6.0", "float16": "7.0", "int8": "6.1"}
"""The same for TensorRT 8.6.  Source: its support matrix."""
_STORED_ALONE = "8.0"
"""That of products with stored int8 or int4 weights and float activations.  Source: as above."""
SPARSE = "8.0"
"""That of kernels for 2:4 weights.  Source: NVIDIA's description of the Ampere architecture."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a package needs; ``dimensions`` has the sizes of dynamic ones, None where none were given.

    ``at_least`` is a release of TensorRT, ``sha256`` by file, ``sparse`` the names of 2:4 weights.
    """

    file: str
    sha256: Mapping[str, str]
    opset: int
    precisions: tuple[str, ...]
    at_least: str
    compute_capability: str
    dimensions: Mapping[str, tuple[int, int, int] | None]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sparse: tuple[str, ...]

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Inputs and outputs of int64, of which TensorRT 8 makes int32."""
        ports = (*self.inputs, *self.outputs) if self.at_least == OLDER else ()
        return tuple(spec.name for spec in ports if spec.dtype == "int64")

    @property
    def typed(self) -> tuple[str, ...] | None:
        """How trtexec is told the types; None where it cannot be: it sets those of TensorRT 8 for the whole model."""
        if self.at_least != OLDER:
            return ("--stronglyTyped",)
        if "float16" in self.precisions:
            return None
        return ("--int8",) if "int8" in self.precisions else ()

    @classmethod
    def of(
        cls,
        made: Artifact,
        model: ir.Model,
        found: Iterable[Capability],
        ranges: Sequence[Range],
        sparse: tuple[str, ...],
    ) -> Constraints:
        """Of ``made``, which is saved from ``model``."""
        precisions, opset = _precisions(model), model.graph.opset_imports[""]
        at_least = _release(opset, found)
        return cls(
            file=made.path.name,
            sha256=_digests(made),
            opset=opset,
            precisions=precisions,
            at_least=at_least,
            compute_capability=_capability(model, precisions, _COMPUTE_OLDER if at_least == OLDER else _COMPUTE),
            dimensions=_dimensions(made.inputs, ranges),
            inputs=made.inputs,
            outputs=made.outputs,
            sparse=sparse,
        )

    def described(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "model": {
                "file": self.file,
                "sha256": dict(self.sha256),
                "opset": self.opset,
                "precisions": list(self.precisions),
            },
            "tensorrt": {"at_least": self.at_least, "strongly_typed": True},
            "compute_capability": {"at_least": self.compute_capability},
            "dimensions": {name: sizes and list(sizes) for name, sizes in self.dimensions.items()},
            "inputs": [_described(spec) for spec in self.inputs],
            "outputs": [_described(spec) for spec in self.outputs],
            "sparsity": {
                "pattern": "2:4" if self.sparse else None,
                "weights": list(self.sparse),
                "compute_capability": SPARSE if self.sparse else None,
            },
        }


def _described(spec: TensorSpec) -> Mapping[str, object]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _dimensions(inputs: Sequence[TensorSpec], ranges: Sequence[Range]) -> dict[str, tuple[int, int, int] | None]:
    sizes = {each.name: each.sizes for each in ranges}
    return {dim: sizes.get(dim) for spec in inputs for dim in spec.shape if isinstance(dim, str)}


def _digests(made: Artifact) -> dict[str, str]:
    """Of the model's file and of the weights beside it, where there are any."""
    weights = made.path.with_name(made.path.name + ".data")
    return {made.path.name: made.sha256} | ({weights.name: sha256_of(weights)} if weights.exists() else {})


def _precisions(model: ir.Model) -> tuple[str, ...]:
    """The types in which the graph computes and stores, in the order of ``_COMPUTE``."""
    made = (value for node in model.graph.all_nodes() for value in node.outputs)
    values = (*made, *model.graph.initializers.values())
    names = {dtype_name(value.dtype) for value in values if value.dtype is not None}
    return tuple(name for name in _COMPUTE if name in names)


def _capability(model: ir.Model, precisions: Sequence[str], least: Mapping[str, str]) -> str:
    """The greatest of what the types, by their ``least``, and their use ask for."""
    kinds = {node.op_type for node in model.graph.all_nodes()}
    alone = [_STORED_ALONE] if "DequantizeLinear" in kinds and "QuantizeLinear" not in kinds else []
    return max([least["float32"], *alone, *(least[name] for name in precisions)], key=numbers)


def _release(opset: int, found: Iterable[Capability]) -> str:
    """The first release known to read the opset and every operator; the newest where none is known to."""
    known = parsers().opsets
    reading = next((release for release, most in known.items() if opset <= most), list(known)[-1])
    return max([reading, *(each.since for each in found if each.since)], key=numbers)
