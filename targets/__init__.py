"""Canonical ONNX → deployable artifacts, one package per target.  Installed as ``convertkit.targets``."""
