"""The worker that holds TensorFlow: writes SavedModels and runs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from convertkit.artifact import Array
from convertkit.errors import ToolError
from convertkit.targets.tf_serving.file import read
from convertkit.targets.tf_serving.saved_model import SIGNATURE, write
from convertkit.targets.tf_serving.warmup import write_warmup
from convertkit.workers.process import Reply


class Service:
    """Methods that take JSON-able parameters and arrays by name."""

    def __init__(self) -> None:
        self._session: Any = None
        self._signature: Any = None

    def write(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """A SavedModel in ``folder`` of the ``.tflite`` file ``model``."""
        graphs = read(Path(params["model"]).read_bytes())
        write(tf, graphs, Path(params["folder"]), (params["inputs"], params["outputs"]))
        return Reply()

    def warm_up(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Requests for the server's start, of the inputs in ``arrays``."""
        write_warmup(tf, Path(params["folder"]), params["name"], SIGNATURE, arrays)
        return Reply()

    def load(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Open the SavedModel in ``folder`` as the server does; gives the version of TensorFlow."""
        v1 = tf.compat.v1
        self._session = v1.Session(graph=tf.Graph())
        try:
            loaded = v1.saved_model.load(self._session, [v1.saved_model.tag_constants.SERVING], params["folder"])
        except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ToolError(f"TensorFlow does not load the SavedModel: {_brief(error)}") from error
        self._signature = loaded.signature_def[SIGNATURE]
        return Reply(tf.__version__)

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """All outputs of the signature for one call."""
        signature = self._signature
        given = {signature.inputs[name].name: value for name, value in arrays.items()}
        wanted = {name: info.name for name, info in signature.outputs.items()}
        try:
            return Reply(arrays=self._session.run(wanted, given))
        except tf.errors.OpError as error:
            raise ToolError(f"TensorFlow fails on the SavedModel: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
