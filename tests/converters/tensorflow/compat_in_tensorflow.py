"""What is relied on of TensorFlow and tf2onnx beyond their documentation: mend ``compat.py`` where this fails.

Run by ``test_compat.py`` in a process of its own, as TensorFlow brings Keras along on its own backend.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf2onnx

from convertkit.converters.tensorflow import compat


class Line(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable([2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": self.slope * x}


def test_variables_become_constants() -> None:
    model = Line()
    made = compat.with_constants(model.__call__.get_concrete_function())
    kinds = {node.op for node in made.graph.as_graph_def().node}
    assert "Const" in kinds
    assert not {"VarHandleOp", "ReadVariableOp"} & kinds
    assert [[x.name for x in each] for each in (made.inputs, made.outputs)] == [["x:0"], ["Identity:0"]]


def test_control_flow_stays_an_operator() -> None:
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def loop(x):
        while x < 10.0:
            x *= 2.0
        return x

    made = compat.with_constants(loop.get_concrete_function())
    assert {"While", "StatelessWhile"} & {node.op for node in made.graph.as_graph_def().node}


def test_a_saved_model_becomes_stablehlo(tmp_path) -> None:
    model = Line()
    tf.saved_model.save(model, str(tmp_path), signatures={"serving_default": model.__call__.get_concrete_function()})
    made = compat.stablehlo_of(str(tmp_path), "serving_default", ["serve"], "2")
    assert made.startswith(b"ML\xefR")
    assert b"tf_saved_model.index_path" in made


def test_tf2onnx_asks_registered_handlers() -> None:
    """Of two forms that of the later opset counts, also over tf2onnx's own."""
    from tf2onnx.handler import tf_op

    assert compat.tf_op is tf_op
    assert {"version_9"} <= set(dir(compat.Select)), "Choose builds on it"
    assert {"version_11"} <= set(dir(compat.Resize)), "Weighted builds on it"
    assert {"version_10"} <= set(dir(compat.CropAndResize)), "Crops builds on it"
    assert {"version_9"} <= set(dir(compat.ExtractImagePatches)), "Patches builds on it"
    assert {"version_12"} <= set(dir(compat.MatrixDiag)), "Diagonals builds on it"
    assert {"any_version"} <= set(dir(compat.NonMaxSuppression)), "Suppressed builds on it"
    definition = tf.compat.v1.GraphDef()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        tf.identity(tf.raw_ops.SelectV2(condition=x > 0, t=x, e=-x), name="y")
        definition = graph.as_graph_def()
    import convertkit.converters.tensorflow.handlers  # noqa: F401 - registers

    made, _ = tf2onnx.convert.from_graph_def(definition, input_names=["x:0"], output_names=["y:0"], opset=18)
    kinds = {node.op_type for node in made.graph.node}
    assert "Where" in kinds
    assert "Mul" not in kinds


def test_element_types_have_numpy_s() -> None:
    assert np.dtype(compat.numpy_type(1)) == np.float32
    assert np.dtype(compat.numpy_type(7)) == np.int64
