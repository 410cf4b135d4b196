"""The routes from a loaded model to ONNX, tried in order and accepted by numbers alone."""
