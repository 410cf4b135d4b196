"""ONNX in the forms that compilers lower: constants and sizes known, functions expanded; what targets share."""
