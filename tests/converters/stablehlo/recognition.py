"""Programs of JAX converted, recognised and run, for the tests of recognition."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
import onnxruntime
from jax import export

from convertkit.converters.stablehlo import importer
from convertkit.converters.stablehlo.recognise import recognise
from convertkit.onnx.canonical import canonicalize

X = np.random.default_rng(3).standard_normal((2, 5, 8)).astype(np.float32) * 3


def converted(function):
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct(X.shape, X.dtype))
    return importer.to_onnx(exported.mlir_module_serialized)


def operators(model):
    return [node.op_type for node in model.graph if node.op_type not in ("Identity", "Constant")]


def run(model):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})[0]


def check(function, expected, monkeypatch, within=1e-6):
    model = converted(function)
    assert operators(model) == expected
    with monkeypatch.context() as patch:
        patch.setattr(importer, "recognise", lambda plain: plain)
        before = run(converted(function))
    after = run(model)
    assert np.abs(after - before).max() <= within * np.abs(before).max()


def free(function, shape, dtype):
    """Converted with dynamic sizes, which the canonical form has named."""
    spec = jax.ShapeDtypeStruct(export.symbolic_shape(shape), dtype)
    exported = export.export(jax.jit(function), platforms=["cpu"])(spec)
    return recognise(canonicalize(importer.to_onnx(exported.mlir_module_serialized)))


def agrees(function, model, *arrays, within=0.0):
    """Whether ONNX Runtime gives what JAX gives for each of these."""
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    for array in arrays:
        (got,) = session.run(None, {session.get_inputs()[0].name: array})
        np.testing.assert_allclose(got, np.asarray(function(jnp.asarray(array))), rtol=0, atol=within)
