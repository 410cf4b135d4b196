"""ONNX → ONNX where numerics change: calibration, QDQ placement, pruning.  Installed as ``convertkit.quantization``."""
