"""The float64 twin of a model: what it computes in exact arithmetic, and how far its own roundings move that."""

from convertkit.onnx.twin.twin import Truth, Twin

__all__ = ["Truth", "Twin"]
