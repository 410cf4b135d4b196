"""What Triton's Python backend runs in place of its ONNX Runtime backend, which no registry has: the same model.

The backend's interpreter does not read PYTHONPATH; $TRITON_SITE_PACKAGES has numpy and onnxruntime.
"""

import os
import sys

sys.path.insert(0, os.environ["TRITON_SITE_PACKAGES"])

import onnxruntime
import triton_python_backend_utils as backend


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = (
            [each.name for each in side] for side in (self.session.get_inputs(), self.session.get_outputs())
        )

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        feed = {name: backend.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
        found = self.session.run(self.outputs, feed)
        return backend.InferenceResponse([backend.Tensor(*pair) for pair in zip(self.outputs, found, strict=True)])
