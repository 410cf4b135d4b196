"""Source formats → ONNX, one package per framework.  Installed as ``convertkit.converters``."""
