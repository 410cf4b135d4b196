"""Cost tables of ONNX Runtime's operators made from times: of the machine at hand, or of an emulated core."""
