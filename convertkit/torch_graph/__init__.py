"""ONNX operators as functions of PyTorch.  Only workers import the modules in here: nothing else of the core may."""
