"""Modules of quantized element types are refused in one sentence that says what to do, as text and as bytecode."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("jaxlib.mlir.ir")

from jaxlib.mlir import ir

from convertkit.converters.stablehlo.importer import to_onnx
from convertkit.converters.stablehlo.module import context
from convertkit.errors import Unsupported

TEXT = """
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 1.0e-01:5>>) -> tensor<4xf32> {
  %0 = stablehlo.uniform_dequantize %x : (tensor<4x!quant.uniform<i8:f32, 1.0e-01:5>>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
QUANTIZED = "!vhlo.tensor_v1<4x!vhlo.quant_v1<!vhlo.i8_v1:!vhlo.f32_v1, 1.0e-01:5, -128:127, 1>>"
VERSIONED = f"""
"vhlo.func_v1"() <{{
  arg_attrs = #vhlo.array_v1<[]>, res_attrs = #vhlo.array_v1<[]>, sym_visibility = #vhlo.string_v1<"">,
  function_type = #vhlo.type_v1<!vhlo.func_v1<({QUANTIZED}) -> {QUANTIZED}>>, sym_name = #vhlo.string_v1<"main">
}}> ({{
 ^bb0(%x: {QUANTIZED}):
  "vhlo.return_v1"(%x) : ({QUANTIZED}) -> ()
}}) : () -> ()
"""
"""What portable bytecode holds, which unlike text brings quantized types with it."""


def bytecode() -> bytes:
    with context() as ctx:
        written = io.BytesIO()
        ir.Module.parse(VERSIONED, ctx).operation.write_bytecode(written)
        return written.getvalue()


@pytest.mark.parametrize("form", ["text", "bytecode"])
def test_quantized_types_are_refused(form: str):
    with pytest.raises(Unsupported, match=r"quantized element types .*; export the float model and quantize it"):
        to_onnx(TEXT if form == "text" else bytecode())
