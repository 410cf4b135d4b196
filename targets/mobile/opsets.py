"""Whether an app's ONNX Runtime surely knows a model's operators."""

from __future__ import annotations

from convertkit.errors import Unsupported


def check_opset(model: bytes, most: int | None, library: str) -> None:
    """``Unsupported`` for an ONNX model of a newer opset than ``most``; None is for other files."""
    if most is None:
        return
    import onnx

    proto = onnx.load_from_string(model)
    opset = max((each.version for each in proto.opset_import if not each.domain), default=0)
    if opset > most:
        raise Unsupported(
            f"the model is of opset {opset}, and {library} surely knows {most}", ways_out=(f"--opset {most}",)
        )
