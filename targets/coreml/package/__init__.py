"""An ``.mlpackage`` as it lies on disk: read and made the same each time, without Core ML or coremltools."""
