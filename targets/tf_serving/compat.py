"""What TensorFlow does not promise: ``tests/targets/tf_serving/test_saved_models.py`` needs it for equal bytes."""

from __future__ import annotations

from typing import Any


def saved_model_message() -> Any:
    """The class of the message in ``saved_model.pb``."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    return SavedModel
