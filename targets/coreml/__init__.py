"""Core ML: so far how it wants a model quantized; nothing delivers an ``.mlpackage`` yet."""
