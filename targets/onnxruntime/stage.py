"""Canonical ONNX → the ``.onnx`` that is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.onnx.load import load_own
from convertkit.onnx.logarithms import widen_logarithms
from convertkit.onnx.opset import at_opset
from convertkit.onnx.save import save_model
from convertkit.onnx.unsigned import has_cut_sums, make_unsigned, spreads_signed, widen_weights
from convertkit.recipe import THIS, MeasuredDevice
from convertkit.stage import FLOAT32, Stage, Tolerance
from convertkit.targets.onnxruntime import IR_VERSIONS
from convertkit.targets.onnxruntime.borders import keep_zero_borders
from convertkit.targets.onnxruntime.depths import write_out_depths
from convertkit.targets.onnxruntime.devices import known, signed_on
from convertkit.targets.onnxruntime.dynamic import make_dynamic
from convertkit.targets.onnxruntime.exponentials import keep_small_exponentials
from convertkit.targets.onnxruntime.foldable import make_foldable
from convertkit.targets.onnxruntime.long_extremes import write_out_long_extremes
from convertkit.targets.onnxruntime.mean_variance import write_out_mean_variance
from convertkit.targets.onnxruntime.profile import costs_for
from convertkit.targets.onnxruntime.sideways import lay_on_side
from convertkit.targets.onnxruntime.wider_integers import widen_integers

_TRACES = "pkg.torch."

_INTEGER_KERNELS = Tolerance(
    "ONNX Runtime's fused integer kernels round each operator on their own, at most 1 LSB",
    lsb=3.0,
    snr_db=15.0,
    warn_snr_db=25.0,
)

_INTEGER_WEIGHTS = Tolerance(
    "ONNX Runtime multiplies integer weights by activations that it quantizes on the fly",
    snr_db=15.0,
    warn_snr_db=25.0,
)

_HALF = Tolerance(
    "float16 keeps eleven bits, and ONNX Runtime rounds to it at other places than the graph says",
    snr_db=40.0,
    warn_snr_db=50.0,
)


def keep_added_zeros(model: ir.Model) -> None:
    """``x + 0.0`` as a Sum, in place: it makes 0.0 of -0.0, and ONNX Runtime drops the Add.

    Source of the rule: onnxruntime/core/optimizer/noop_elimination.cc, which knows Add, Sub, Mul and Div.
    """
    for node in model.graph.all_nodes():
        if node.op_type == "Add" and not node.domain and any(map(_is_real_zero, node.inputs)):
            node.op_type = "Sum"


def _is_real_zero(value: ir.Value | None) -> bool:
    known = None if value is None else value.const_value
    return known is not None and known.size == 1 and known.dtype.is_floating_point() and not known.numpy().any()


class DeliverOnnx:
    """Writes ``model.onnx``; lowered to ``opset`` and with the ``ir_version`` in its head where these are asked for.

    ``precision`` says which forms a quantized model gets; one that came quantized and is only delivered keeps its own.
    ``devices`` say of an int8 one which products quantize what they read, ``this`` by what was ``measured``; for some
    devices activations stay signed, unless ONNX Runtime may not load that (:func:`spreads_signed`).

    The tolerance is that of what the last model computes, not of what was asked for: a source may be quantized already.
    """

    name = "onnxruntime"
    version = "14"
    accepts = frozenset({"onnx"})
    produces = "onnxruntime"

    def __init__(
        self,
        opset: int | None,
        precision: str = "float32",
        ir_version: int | None = None,
        *,
        any_cpu: bool = True,
        devices: tuple[str, ...] = (),
        measured: MeasuredDevice | None = None,
    ) -> None:
        self._opset, self._precision, self._ir_version = opset, precision, ir_version
        self._any_cpu, self._devices = any_cpu, known(devices, measured) if precision == "int8" else ()
        self._measured = measured if THIS in self._devices else None
        self.tolerance: Tolerance = FLOAT32

    @property
    def options(self) -> Mapping[str, object]:
        asked = {"opset": self._opset, "ir_version": self._ir_version}
        return {
            "precision": self._precision,
            "any_cpu": self._any_cpu,
            **{name: number for name, number in asked.items() if number},
            **({"devices": self._devices} if self._devices else {}),
            **({"measured": self._measured.told} if self._measured else {}),
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = load_own(source.path)
        lay_on_side(model)
        widen_integers(model)
        write_out_long_extremes(model)
        if self._precision in ("int8", "w8"):
            make_dynamic(model, costs_for(self._devices, self._measured))
        if self._precision in ("int8", "w8", "w4"):
            make_foldable(model)
            drop_traces(model)
        self.tolerance = tolerance_of(model)
        if self._opset is not None:
            newest = model.graph.opset_imports.get("")
            model = at_opset(model, self._opset, f"--opset {newest} or leave --opset out")
        if spreads_signed(model) or (self._precision == "int8" and not signed_on(self._devices)):
            make_unsigned(model)
        if self._any_cpu and has_cut_sums(model):
            make_unsigned(model)
            widen_weights(model)
        keep_added_zeros(model)
        keep_zero_borders(model)
        keep_small_exponentials(model)
        widen_logarithms(model)
        write_out_mean_variance(model)
        write_out_depths(model)
        if self._ir_version is not None:
            set_ir_version(model, self._ir_version)
        made = save_model(model, workdir / "model.onnx", f"{self.name} {self.version}", source.initial_state)
        return replace(made, format=self.produces)


def drop_traces(model: ir.Model) -> None:
    """Remove what torch's exporter noted about each node: an artifact that is to be small need not carry it.

    It names files of the machine that exported the model, and makes up a tenth of a small int8 transformer.
    """
    for node in model.graph:
        for key in [key for key in node.metadata_props if key.startswith(_TRACES)]:
            del node.metadata_props[key]


def tolerance_of(model: ir.Model) -> Tolerance:
    """What ONNX Runtime's kernels may differ by, by what the model computes."""
    if any(node.op_type == "QuantizeLinear" for node in model.graph):
        return _INTEGER_KERNELS
    if any(node.op_type == "DynamicQuantizeLinear" for node in model.graph):
        return _INTEGER_WEIGHTS
    # By default such a pair becomes MatMulNBits at accuracy level 4: int8 activations.
    # Source: ONNX Runtime, session option session.qdq_matmulnbits_accuracy_level.
    for node in model.graph:
        sources = [value.producer() for value in node.inputs if value is not None]
        if node.op_type in ("MatMul", "Gemm") and any(each and each.op_type == "DequantizeLinear" for each in sources):
            return _INTEGER_WEIGHTS
    computed = (value.dtype for node in model.graph if node.op_type != "Cast" for value in node.outputs)
    return _HALF if ir.DataType.FLOAT16 in computed else FLOAT32


def set_ir_version(model: ir.Model, ir_version: int) -> None:
    """The version of the file format in the head of the file: an older ONNX Runtime takes no newer one.

    ``Unsupported`` where the model's opsets came with a newer format.
    Source: ONNX, docs/Versioning.md, "Released Versions".
    """
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in model.graph.opset_imports.items()]
    least = max(onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True), IR_VERSIONS[0])
    if ir_version < least:
        opset = model.graph.opset_imports.get("")
        fitting = [
            number
            for (domain, number), version in onnx.helper.OP_SET_ID_VERSION_MAP.items()
            if domain == "ai.onnx" and version <= ir_version
        ]
        raise Unsupported(
            f"opset {opset} needs version {least} of the file format or a newer one, not {ir_version}",
            ways_out=(f"--opset {max(fitting)}", f"--onnxruntime-ir-version {least}"),
        )
    model.ir_version = ir_version


_: type[Stage] = DeliverOnnx
