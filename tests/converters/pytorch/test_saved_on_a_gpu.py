"""Files that were saved on a GPU: they name it, and are read where there is none."""

from __future__ import annotations

import io
import json
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

import convertkit
from convertkit.converters.pytorch.load.devices import code_on_processor
from convertkit.converters.pytorch.load.load import load
from convertkit.errors import ConvertKitError, SourceError, UsageError
from convertkit.workers.launching import TORCH_ENVIRONMENT
from convertkit.workers.process import Worker

pytestmark = pytest.mark.filterwarnings("ignore")
HERE, THERE = {"type": "cpu", "index": None}, {"type": "cuda", "index": 0}


class Places(nn.Module):
    """Everything that has a device: weights, a buffer, a constant, tensors that are made and moved."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 4)
        self.register_buffer("window", torch.hann_window(4))

    def forward(self, x: Tensor) -> Tensor:
        made = torch.arange(4, device=x.device) + torch.zeros(4, device=x.device).to(x.device)
        return self.dense(x * self.window) + made * torch.tensor([1.0, 2.0, 3.0, 4.0])


class Named(nn.Module):
    """The device is written in the code and kept as an attribute; ``there`` moves as ``.cuda()`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.place = nn.Linear(4, 4), torch.device("cuda:1")

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.linspace(0.0, 1.0, 4, device="cuda") + torch.ones(4, device=torch.device("cuda:0"))
        return self.dense(x.to(self.place)).cuda() * weights


def _attention(kernel: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    operators = torch.ops.aten
    if kernel == "flash":
        return lambda q, k, v: operators._scaled_dot_product_flash_attention(q, k, v, 0.0, True, scale=0.3)[0]
    if kernel == "cudnn":
        return lambda q, k, v: operators._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0]
    mask = torch.ones(1, 1, 8, 8).tril().log()
    return lambda q, k, v: operators._scaled_dot_product_efficient_attention(q, k, v, mask, False, scale=0.3)[0]


WANTED = {
    "flash": {"is_causal": True, "scale": 0.3},
    "cudnn": {},
    "efficient": {"is_causal": True, "scale": 0.3},  # which the mask says
}


class Attending(nn.Module):
    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.dense, self.compute = nn.Linear(16, 16), _attention(kernel)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.dense(x).unflatten(-1, (2, 8)).transpose(1, 2)
        return self.compute(heads, heads, heads).transpose(1, 2).flatten(2)


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reading forbids to its process, it forbids here to no other test."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")


def _program_of_a_gpu(program: torch.export.ExportedProgram, path: Path) -> Path:
    """The program as a GPU's torch would have saved it: the device in its JSON and in what is pickled."""
    plain = path.with_name("plain.pt2")
    torch.export.save(program, plain)
    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(path, "w") as changed:
        for entry in archive.infolist():
            content = archive.read(entry)
            if entry.filename.endswith(".json"):
                content = json.dumps(_moved(json.loads(content))).encode()
            elif content.startswith(b"PK"):
                content = _pickled_there(content)
            changed.writestr(entry, content)
    return path


def _moved(value: object) -> object:
    if value == HERE:
        return THERE
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in value.items()}
    return [_moved(item) for item in value] if isinstance(value, list) else value


def _pickled_there(content: bytes) -> bytes:
    """What ``torch.save`` wrote, with storages of the GPU."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(made, "w") as changed:
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.filename.endswith("data.pkl"):
                assert any(argument == "cpu" for _, argument, _ in pickletools.genops(data)), (
                    "a storage names its device"
                )
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            changed.writestr(entry, data)
    return made.getvalue()


def test_a_program_is_delivered(tmp_path: Path) -> None:
    module, x = Places().eval(), torch.randn(2, 4)
    path = _program_of_a_gpu(torch.export.export(module, (x,)), tmp_path / "model.pt2")
    convertkit.export(path, "onnxruntime", output=tmp_path / "out")
    session = ort.InferenceSession(tmp_path / "out" / "model.onnx")
    (got,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", WANTED)
def test_attention_of_a_gpu_is_attention(kernel: str, tmp_path: Path) -> None:
    module, x = Attending(kernel).eval(), torch.randn(1, 8, 16)
    with torch.no_grad():
        program = torch.export.export(module, (x,))
    subject = load(str(_program_of_a_gpu(program, tmp_path / "model.pt2")), "pt2", None)
    heads = module.dense(x).unflatten(-1, (2, 8)).transpose(1, 2)
    wanted = nn.functional.scaled_dot_product_attention(heads, heads, heads, **WANTED[kernel])
    torch.testing.assert_close(subject.module(x), wanted.transpose(1, 2).flatten(2))


def test_attention_of_fewer_keys_than_queries_shares_them(tmp_path: Path) -> None:
    class Shared(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.ops.aten._scaled_dot_product_flash_attention(q, k, k * 2)[0]

    q, k = torch.randn(1, 4, 8, 8), torch.randn(1, 2, 8, 8)
    program = torch.export.export(Shared(), (q, k))
    subject = load(str(_program_of_a_gpu(program, tmp_path / "model.pt2")), "pt2", None)
    wanted = nn.functional.scaled_dot_product_attention(q, k, k * 2, enable_gqa=True)
    torch.testing.assert_close(subject.module(q, k), wanted)


class Naming(nn.Module):
    def __init__(self, there: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 4).to("cuda") if there else nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x) + torch.ones(4, device="cuda")


def made_there() -> nn.Module:
    return Naming(there=True)


@pytest.mark.parametrize(("factory", "told"), [("Naming", "the model fails on x"), ("made_there", "failed with")])
def test_code_that_asks_for_a_gpu_is_told_what_to_write(factory: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertKitError, match=rf"{told}.*CUDA.*\n  try   the device of an input \(x.device\)"):
        convertkit.export(f"{__file__}:{factory}", "onnxruntime", input=["x:2,4"], output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_module_without_numbers_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Linear fails on the example: .*meta tensor"):
        convertkit.export(
            nn.Linear(4, 4, device="meta"), "onnxruntime", example=torch.ones(1, 4), output=tmp_path / "o"
        )


def test_an_archive_computes_here(tmp_path: Path) -> None:
    module, x = Named().eval(), torch.randn(2, 4)
    torch.jit.script(module).save(tmp_path / "model.pt")
    subject = load(str(tmp_path / "model.pt"), "torchscript", None)
    wanted = module.dense(x) * (torch.linspace(0.0, 1.0, 4) + 1)
    torch.testing.assert_close(subject.module(x), wanted)


def test_an_archive_of_a_gpu_that_is_damaged_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.jit.script(Named().eval()).save(path)
    with zipfile.ZipFile(path) as archive:
        entry = next(each for each in archive.infolist() if "/data/" in each.filename)
        content = archive.read(entry)
    path.write_bytes(path.read_bytes().replace(content, bytes([content[0] ^ 255]) + content[1:]))
    with pytest.raises(SourceError, match=r"model\.pt: torch cannot read this TorchScript archive: Bad CRC-32"):
        load(str(path), "torchscript", None)


def test_code_keeps_its_places() -> None:
    code = b'a = torch.to(x, torch.device("cuda:12"))\nb = torch.cuda(a)\nc = torch.device("cpu")\n'
    changed = code_on_processor(code)
    assert changed == b'a = torch.to(x, torch.device("cpu"    ))\nb = torch.cpu (a)\nc = torch.device("cpu")\n'
    assert len(changed) == len(code)


def test_a_worker_sees_no_gpu() -> None:
    with Worker(f"{__name__}:Seen", env=TORCH_ENVIRONMENT) as worker:
        assert worker.call("visible").value == "-1"


class Seen:
    """A service that tells what its process sees."""

    def visible(self, _params: object, _arrays: object) -> object:
        import os

        from convertkit.workers.process import Reply

        return Reply(os.environ["CUDA_VISIBLE_DEVICES"])
