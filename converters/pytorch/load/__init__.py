"""From a file or a factory to a model that runs (in the worker)."""
