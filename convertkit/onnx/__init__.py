"""The canonical ONNX stage: reading safely, the operator registry, passes and the reference runner."""

from convertkit.onnx.sympy_on_demand import import_onnx_ir

import_onnx_ir()  # before any module of this package imports it plainly
