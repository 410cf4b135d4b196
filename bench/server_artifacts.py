"""Artifacts of model servers for ``measure.py``: OpenVINO's IR and TensorFlow's SavedModel, on one thread."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
from measure import Feed, closest, fitted

SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Float parts in float32, activations as the file says."""


class OpenVinoArtifact:
    """A ``model.xml`` in OpenVINO's CPU plugin."""

    def __init__(self, path: Path) -> None:
        import openvino

        self.model = openvino.Core().compile_model(path, "CPU", SETTINGS)
        self.request = self.model.create_infer_request()
        self.feed: Feed = {}

    def set(self, feed: Feed) -> None:
        inputs = {port.any_name: port.element_type.to_dtype() for port in self.model.inputs}
        self.feed = {name: np.ascontiguousarray(feed[name].astype(kind)) for name, kind in inputs.items()}

    def invoke(self) -> None:
        self.outputs = self.request.infer(self.feed)

    def results(self, expected: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array(self.outputs[place]) for place in range(len(expected))]

    def operators(self) -> dict[str, int]:
        """Of the graph that the plugin executes: kinds of its kernels."""
        kinds = (node.get_rt_info()["layerType"].astype(str) for node in self.model.get_runtime_model().get_ops())
        return dict(Counter(kind for kind in kinds if kind not in ("Const", "Input", "Output")))


class SavedModelArtifact:
    """The ``serving_default`` of a SavedModel in TensorFlow; feeds and results speak the source's layout."""

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.tf, self.loaded = tf, tf.saved_model.load(str(path))
        self.function = self.loaded.signatures["serving_default"]
        self.inputs = self.function.structured_input_signature[1]
        self.feed: dict[str, object] = {}

    def set(self, feed: Feed) -> None:
        """Arrays by name, in whatever order of axes the signature wants; by place where a tool renamed the inputs."""
        named = set(feed) >= set(self.inputs)
        sources = feed if named else dict(zip(self.inputs, feed.values(), strict=True))
        self.feed = {name: self._tensor(sources[name], spec) for name, spec in self.inputs.items()}

    def _tensor(self, array: np.ndarray, spec: object) -> object:
        sizes = tuple(spec.shape)
        wanted = tuple(here if size is None else size for size, here in zip(sizes, array.shape, strict=True))
        return self.tf.constant(fitted(array, wanted).astype(spec.dtype.as_numpy_dtype))

    def invoke(self) -> None:
        self.outputs = self.function(**self.feed)

    def results(self, expected: list[np.ndarray]) -> list[np.ndarray]:
        found = [each.numpy() for each in self.outputs.values()]
        if len(found) != len(expected):
            raise SystemExit(f"{len(found)} outputs, expected {len(expected)}")
        return [closest(array, wanted) for array, wanted in zip(found, expected, strict=True)]

    def operators(self) -> dict[str, int]:
        """Operators of the function that the signature calls, those of functions that it calls in turn among them."""
        definition = self.function.graph.as_graph_def()
        nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
        return dict(Counter("TRANSPOSE" if node.op == "Transpose" else node.op for node in nodes))
