"""The canonical ONNX stage: reading safely, the operator registry, passes and the reference runner."""
