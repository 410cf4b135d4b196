"""Files of PyTorch Mobile: TorchScript where it is that, and one sentence where its weights are packed."""

import zipfile

import numpy as np
import pytest
import torch

import convertkit
from convertkit.converters.pytorch.read.sniff import examine
from tests.command_line import here


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    net = Net().eval()
    path = tmp_path / "net.ptl"
    torch.jit.script(net)._save_for_lite_interpreter(str(path))
    return net, path


def test_a_lite_file_is_read_as_torchscript(model, tmp_path):
    net, path = model
    assert examine(path).kind == "torchscript"
    result = convertkit.export(path, "onnxruntime", input="x:1,3,8,8", output=tmp_path / "out")
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    assert np.allclose(result.run(x)["output"], net(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("command", ["export", "inspect"])
def test_packed_weights_are_refused_with_the_way_out(command, model, tmp_path):
    packed = tmp_path / "packed.ptl"
    with zipfile.ZipFile(model[1]) as plain, zipfile.ZipFile(packed, "w") as made:
        for entry in plain.infolist():
            data = plain.read(entry)
            if entry.filename.endswith("code/__torch__.py") or "/code/__torch__/" in entry.filename:
                data += b"\n# x = ops.prepacked.conv2d_clamp_run(input, packed)\n"
            made.writestr(entry.filename, data)
    words = ["-o", tmp_path / "out"] if command == "export" else []
    said = here(command, packed, *words)
    assert said.code == 1
    assert "is a model that optimize_for_mobile has packed" in said.complaint
    assert "prepacked::conv2d_clamp_run" in said.complaint
    assert "from before optimize_for_mobile" in said.complaint
    assert not (tmp_path / "out").exists()
