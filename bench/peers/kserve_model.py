"""KServe's own server with a package's model: ``kserve_model.py REPOSITORY``, where kserve and onnxruntime are.

KServe leaves ONNX to Triton's image, which no registry has as a package; its server in Python speaks the same protocol.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnxruntime
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.numpy_codec import from_np_dtype


class OnnxModel(Model):
    """The first version of the repository's only model."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.name)
        self.session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", providers=["CPUExecutionProvider"])
        self.ready = True

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:
        names = [each.name for each in self.session.get_outputs()]
        found = self.session.run(names, {each.name: each.as_numpy() for each in payload.inputs})
        outputs = []
        for name, array in zip(names, found, strict=True):
            output = InferOutput(name, list(array.shape), from_np_dtype(array.dtype))
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        return InferResponse(payload.id or "answer", self.name, outputs)


if __name__ == "__main__":
    (folder,) = (each for each in Path(sys.argv[1]).iterdir() if each.is_dir())
    ModelServer(http_port=8085, enable_grpc=False).start([OnnxModel(folder)])
