"""The openxla testdata taken apart: a program of its inputs alone, those inputs, and what it must give.

Each file of ``$CONVERTKIT_CASES/stablehlo-testdata`` is a program with inputs and expected outputs
inside.  The inputs become arguments, so that nothing can be folded away, and what ``check.expect_*`` receives becomes
the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOLERANCE = {"float32": 1e-4, "float64": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


@dataclass(frozen=True, slots=True)
class Program:
    """StableHLO text, the arrays of its arguments, and the results that the file expects."""

    text: str
    inputs: list[Any]
    expected: list[Any]


def program_of(text):
    """The program of one file."""
    from jaxlib.mlir import ir as mlir

    from convertkit.converters.stablehlo.module import context, functions, read_module

    with context() as ctx, mlir.Location.unknown(ctx):
        module = read_module(ctx, text)
        main = functions(module)["main"]
        inputs = inputs_to_arguments(module, main, "inputs")
        checks = take_checks(main)
        expected = constants_of(module, "expected") if "expected" in functions(module) else []
        wanted = expectations(main, checks, expected)
        for call in [op for op in main.regions[0].blocks[0].operations if op.operation.name == "func.call"]:
            if "@expected" in str(call.operation.attributes["callee"]):
                call.operation.erase()
        return Program(str(module), inputs, wanted)


def constants_of(module, name):
    """What a function without arguments returns, evaluated by the importer and ONNX Runtime."""
    from convertkit.converters.stablehlo.importer import Names, convert_function
    from convertkit.converters.stablehlo.module import functions, prepare

    prepared = module.operation.clone()
    prepare(prepared)
    model = convert_function(prepared, functions(prepared)[name], Names())
    return executed(model, {})


def inputs_to_arguments(module, main, name):
    """Turn ``call @inputs`` into arguments of main; returns the arrays to feed."""
    from jaxlib.mlir import ir as mlir

    from convertkit.converters.stablehlo.module import functions

    block = main.regions[0].blocks[0]
    calls = [
        op for op in block.operations if op.operation.name == "func.call" and "@" + name in str(op.attributes["callee"])
    ]
    if not calls or name not in functions(module):
        return []
    arrays = constants_of(module, name)
    types = []
    for result in calls[0].operation.results:
        argument = block.add_argument(result.type, mlir.Location.unknown(module.context))
        result.replace_all_uses_with(argument)
        types.append(result.type)
    calls[0].operation.erase()
    old = mlir.FunctionType(mlir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = mlir.TypeAttr.get(mlir.FunctionType.get([*old.inputs, *types], old.results))
    for attribute in ("arg_attrs",):
        if attribute in main.attributes:
            del main.attributes[attribute]
    return arrays


def take_checks(main):
    """Remove the checks from main and make their first operands its results."""
    from jaxlib.mlir import ir as mlir

    block = main.regions[0].blocks[0]
    checks = [
        op.operation
        for op in block.operations
        if op.operation.name == "stablehlo.custom_call" and "check." in str(op.attributes["call_target_name"])
    ]
    operands = [(check.operands[0], check.operands[1]) for check in checks]
    for check in checks:
        check.erase()
    last = list(block.operations)[-1]
    with mlir.InsertionPoint(last):
        mlir.Operation.create("func.return", operands=[got for got, _ in operands])
    last.operation.erase()
    old = mlir.FunctionType(mlir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = mlir.TypeAttr.get(
        mlir.FunctionType.get(old.inputs, [got.type for got, _ in operands])
    )
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
    return operands


def expectations(main, checks, expected):
    """The expected arrays: results of ``call @expected`` in the order the checks use them."""
    import numpy as np

    from convertkit.converters.stablehlo.mlir import constant_of

    wanted = []
    for _, value in checks:
        owner = value.owner
        if owner.name == "func.call":
            wanted.append(expected[list(owner.results).index(value)])
        else:
            constant = constant_of(owner.opview)
            parts = [constant.re, constant.im] if hasattr(constant, "re") else [constant]
            arrays = [np.asarray(part.const) for part in parts]
            wanted.append(np.stack(arrays, -1) if len(arrays) == 2 else arrays[0])
    return wanted


def executed(model, feeds):
    """Outputs of the model in ONNX Runtime, bfloat16 included."""
    import ml_dtypes
    import numpy as np
    import onnx
    import onnx_ir as ir
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    data = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    values = {}
    for name, array in feeds.items():
        if array.dtype == ml_dtypes.bfloat16:
            raw = np.array(array, order="C").view(np.uint16)
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, onnx.TensorProto.BFLOAT16)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    names = [output.name for output in session.get_outputs()]
    results = []
    for result in session.run_with_ort_values(names, values):
        if result.element_type() == onnx.TensorProto.BFLOAT16:
            results.append(bfloat16_of(result))
        else:
            results.append(result.numpy())
    return results


def bfloat16_of(value):
    """A bfloat16 OrtValue as a NumPy array; the bindings cannot hand it over, DLPack can."""
    import ctypes

    import ml_dtypes
    import numpy as np

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_uint16 * count).from_address(value.data_ptr()) if count else []
    return np.array(raw, np.uint16).view(ml_dtypes.bfloat16).reshape(shape)


def difference(got, want):
    """Empty where the arrays agree, else what differs; bfloat16 may arrive as the float32 that artifacts give."""
    import numpy as np

    tolerance = TOLERANCE.get(want.dtype.name)
    if want.dtype.name == "bfloat16":
        got, want = got.astype(np.float32), want.astype(np.float32)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if tolerance is None:
        wrong = got != want
        return f"{wrong.sum()} of {wrong.size} differ" if wrong.any() else ""
    a, e = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= tolerance + tolerance * np.abs(e))
    if close.all():
        return ""
    worst = np.argwhere(~close)[0]
    return f"{(~close).sum()} of {close.size} differ, first {a[tuple(worst)]!r} instead of {e[tuple(worst)]!r}"
