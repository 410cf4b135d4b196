"""Models as other packages write them, through the whole export, held against the module itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import foreign_models
import numpy as np
import pytest
import torch

import convertkit
from convertkit.converters.pytorch.load.inner_tensors import Held, _opened
from convertkit.errors import SourceError, Unsupported, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def _same(result: convertkit.Result, feed: dict[str, np.ndarray], expected: list[torch.Tensor]) -> None:
    got = list(result.run(feed).values())
    assert len(got) == len(expected)
    for ours, own in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, own.detach().numpy(), rtol=1e-5, atol=1e-6)


def _names(result: convertkit.Result) -> list[str]:
    return [spec.name for spec in result.artifact.outputs]


@pytest.mark.parametrize("form", ["module", "trace", "program"])
def test_an_output_named_like_an_input_has_another_name(form: str, tmp_path: Path) -> None:
    module = foreign_models.Denoiser().eval()
    source: str | Path = "foreign_models:Denoiser"
    if form == "trace":
        source = tmp_path / "model.pt"
        torch.jit.trace(module, torch.ones(2, 4), strict=False).save(str(source))
    if form == "program":
        source = tmp_path / "model.pt2"
        torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), source)
    result = convertkit.export(source, "tflite", output=tmp_path / "out")
    assert _names(result) == ["sample_out", "mean"]
    assert "the output 'sample' is called 'sample_out', because an input is called 'sample'" in result.report["notes"]
    x = _floats(3, 4)
    _same(result, {"sample": x}, list(module(torch.from_numpy(x)).values()))


def test_an_only_output_of_an_input_called_output(tmp_path: Path) -> None:
    module = foreign_models.Caching()
    torch.jit.script(module).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out", input=["output:N,4"])
    assert _names(result) == ["output_out"]
    x = _floats(3, 4)
    _same(result, {"output": x}, [module(torch.from_numpy(x))])


def test_a_program_is_read_without_the_package_of_its_containers(tmp_path: Path) -> None:
    """torch reads it only where the class is registered, which it is here and not in the worker."""
    from torch.utils import _pytree

    kind = foreign_models.Prediction
    if kind not in _pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(kind, serialized_type_name="elsewhere.Prediction")
    module = foreign_models.Classifier().eval()
    torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), tmp_path / "model.pt2")
    result = convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    assert _names(result) == ["logits"]
    x = _floats(3, 4)
    _same(result, {"x": x}, [module(torch.from_numpy(x)).logits])


def test_a_program_is_read_without_the_package_of_its_named_tuples(tmp_path: Path) -> None:
    from torch.utils import _pytree

    if foreign_models.Moments not in _pytree.SUPPORTED_NODES:
        _pytree._register_namedtuple(foreign_models.Moments, serialized_type_name="elsewhere.Moments")
    module = foreign_models.Measuring().eval()
    torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), tmp_path / "model.pt2")
    result = convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    x = _floats(3, 4)
    mean, parts = module(torch.from_numpy(x))
    _same(result, {"x": x}, [mean, *parts])


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_weights_of_torchao_are_read_without_it(
    kind: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class lies here where a file of torchao names one, and not in the worker."""
    for name in ("torchao", "torchao.quantization"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["torchao.quantization"], "ScaledTensor", foreign_models.ScaledTensor, raising=False)
    monkeypatch.setattr(foreign_models.ScaledTensor, "__module__", "torchao.quantization")
    module = foreign_models.Weighed(kind).eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), tmp_path / "model.pt2")
        result = convertkit.export(tmp_path / "model.pt2", "tflite", output=tmp_path / "out")
        x = _floats(3, 4)
        _same(result, {"x": x}, [module(torch.from_numpy(x))])


def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    result = convertkit.export("foreign_models:compiled", "onnxruntime", output=tmp_path / "out")
    assert [spec.name for spec in result.artifact.inputs] == ["x", "scale"]
    x = _floats(3, 4)
    _same(result, {"x": x, "scale": x}, [foreign_models.Part()(torch.from_numpy(x), torch.from_numpy(x))])


def test_weights_of_compiled_parts_fit_the_module(tmp_path: Path) -> None:
    weights = {
        f"_orig_mod.{name.replace('inner.', 'inner._orig_mod.')}": value
        for name, value in foreign_models.Part().state_dict().items()
    }
    torch.save(weights, tmp_path / "weights.pt")
    result = convertkit.export(
        tmp_path / "weights.pt", "onnxruntime", output=tmp_path / "out", model="foreign_models:compiled"
    )
    x = _floats(2, 4)
    _same(result, {"x": x, "scale": x}, [foreign_models.Part()(torch.from_numpy(x), torch.from_numpy(x))])


def test_a_script_s_list_is_no_sequence(tmp_path: Path) -> None:
    module = foreign_models.Growing().eval()
    torch.jit.script(module).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", "tflite", output=tmp_path / "out", input=["x:N,3,8,8"])
    x = _floats(2, 3, 8, 8)
    _same(result, {"x": x}, [module(torch.from_numpy(x))])


def test_a_trace_computes_with_sizes_beside_a_fused_layer(tmp_path: Path) -> None:
    module = foreign_models.Measured().eval()
    torch.jit.trace(module, torch.ones(2, 5, 16), check_trace=False).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out", input=["x:N,L,16"])
    x = _floats(3, 9, 16)
    _same(result, {"x": x}, [module(torch.from_numpy(x))])


def test_flags_of_a_trace_times_floats_are_float32(tmp_path: Path) -> None:
    """Their floats are float64 tensors in the archive: the result was float64, and TFLite refused it."""
    module = foreign_models.Levelled().eval()
    torch.jit.trace(module, torch.ones(2, 4, 3)).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", "tflite", output=tmp_path / "out", input=["x:N,4,3"])
    assert [spec.dtype for spec in result.artifact.outputs] == ["float32"]
    x = _floats(3, 4, 3) * 2
    _same(result, {"x": x}, [module(torch.from_numpy(x))])


def test_what_the_model_itself_does_not_take_is_told_in_its_own_words(tmp_path: Path) -> None:
    """ONNX Runtime divides by a length of 0 first, and the refusal was that no route works."""
    module = foreign_models.Turned().eval()
    lengths = torch.tensor([2, 5])
    torch.jit.trace(module, (torch.ones(2, 5, 3), lengths)).save(str(tmp_path / "model.pt"))
    given = ["x:N,5,3", "lengths:N:int64"]
    with pytest.raises(SourceError, match=r"the model fails on .*lengths \[\d\] int64: .*"):
        convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out", input=given)


def test_a_view_behind_attention_is_a_reshape(tmp_path: Path) -> None:
    """torch.onnx's decomposition of attention lays its result out in another order than the program recorded."""
    module = foreign_models.Relative().eval()
    with torch.no_grad():  # where gradients are wanted, attention is already recorded in that order
        program = torch.export.export(module, (torch.ones(2, 5, 32),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, tmp_path / "model.pt2")
    result = convertkit.export(tmp_path / "model.pt2", "onnxruntime", output=tmp_path / "out")
    x = _floats(3, 5, 32)
    _same(result, {"x": x}, [module(torch.from_numpy(x))])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder as ``save_pretrained`` writes it."""
    folder = tmp_path / "saved"
    folder.mkdir()
    settings = {"model_type": "tiny", "architectures": ["TinyModel"], "width": 3}
    (folder / "config.json").write_text(json.dumps(settings))
    torch.save(foreign_models.Configured(foreign_models.Settings(3)).state_dict(), folder / "pytorch_model.bin")
    return folder


def test_weights_beside_settings_name_the_class(saved: Path, tmp_path: Path) -> None:
    for source in (saved, saved / "pytorch_model.bin"):
        with pytest.raises(UsageError) as caught:
            convertkit.export(source, "onnxruntime", output=tmp_path / "out")
        assert "belong to TinyModel" in str(caught.value)
        assert str(caught.value).endswith("--model transformers:TinyModel")


def test_settings_beside_the_weights_make_the_module(saved: Path, tmp_path: Path) -> None:
    file = Path(foreign_models.__file__)
    result = convertkit.export(saved, "onnxruntime", output=tmp_path / "out", model=f"{file}:Configured")
    x = _floats(3, 4)
    _same(result, {"x": x}, [foreign_models.Configured(foreign_models.Settings(3))(torch.from_numpy(x))])


def _run(result: convertkit.Result, module: torch.nn.Module, length: int) -> None:
    ranges = {"input_ids": 9, "attention_mask": 2, "kind_ids": 3}
    rng = np.random.default_rng(1)
    feed = {spec.name: rng.integers(0, ranges[spec.name], (2, length)) for spec in result.artifact.inputs}
    _same(result, feed, [module(**{name: torch.from_numpy(value) for name, value in feed.items()})])


def test_the_mask_of_a_class_s_own_example_is_an_input(tmp_path: Path) -> None:
    result = convertkit.export("foreign_models:Pretrained", "tflite", output=tmp_path / "out")
    assert [(spec.name, spec.shape) for spec in result.artifact.inputs] == [
        ("input_ids", ("N", 5)),
        ("attention_mask", ("N", 5)),
    ]
    assert (
        "attention_mask is an input, as the model takes it, though its dummy_inputs leave it out"
        in (result.report["notes"])
    )
    _run(result, foreign_models.Pretrained(), 5)


def test_what_an_example_leaves_out_is_named_with_flags_that_work(tmp_path: Path) -> None:
    plain = convertkit.export("foreign_models:Described", "onnxruntime", output=tmp_path / "plain")
    assert [(spec.name, spec.shape) for spec in plain.artifact.inputs] == [("input_ids", ("N", 5))]
    notes = plain.report["notes"]
    for note in (
        "left out, as in the example: attention_mask; --input 'attention_mask:N,5:int64[0,2)' makes it an input",
        "left out, as in the example: kind_ids; --input 'kind_ids:N,5:int64[0,3)' makes it an input",
        "left out, as in the example: labels",
        "the example fixes sizes of which the model takes others, too; --input 'input_ids:N,LENGTH:int64[0,9)'"
        " frees them",
    ):
        assert note in notes
    flags = ["attention_mask:N,5:int64[0,2)", "kind_ids:N,5:int64[0,3)"]
    whole = convertkit.export("foreign_models:Described", "onnxruntime", output=tmp_path / "whole", input=flags)
    assert [(spec.name, spec.shape) for spec in whole.artifact.inputs] == [
        (name, ("N", 5)) for name in ("input_ids", "attention_mask", "kind_ids")
    ]
    _run(whole, foreign_models.Described(), 5)
    free = convertkit.export(
        "foreign_models:Described", "onnxruntime", output=tmp_path / "free", input=["input_ids:N,LENGTH:int64[0,9)"]
    )
    _run(free, foreign_models.Described(), 7)


def test_a_weight_of_torchao_inside_of_another_is_refused_by_its_class() -> None:
    graph = torch.fx.Graph()
    weight = graph.placeholder("weight")
    graph.output(graph.call_function(torch.ops.export.access_subclass_inner_tensor.default, (weight, "inner")))
    held = torch.Tensor._make_subclass(Held, torch.ones(2))
    for inner in (torch.Tensor._make_subclass(Held, torch.ones(2)), None):
        held.inner = inner
        with pytest.raises(
            Unsupported, match="the weight weight is an object of torchao's class Held, which is not taken"
        ):
            _opened(weight, held)


@pytest.mark.parametrize("form", ["module", "trace"])
def test_sizes_that_are_buffers_are_known(form: str, tmp_path: Path) -> None:
    module = foreign_models.Framed().eval()
    source: str | Path = "foreign_models:Framed"
    if form == "trace":
        source = tmp_path / "model.pt"
        torch.jit.trace(module, module.example_inputs, strict=False).save(str(source))
    result = convertkit.export(source, "tflite", output=tmp_path / "out", input=["x:N,3,17"])
    x = _floats(3, 3, 17)
    _same(result, {"x": x}, [module(torch.from_numpy(x))["frames"]])


def test_a_size_that_values_decide_is_refused_with_its_line(tmp_path: Path) -> None:
    module = foreign_models.Lengthened().eval()
    torch.jit.trace(module, module.example_inputs, strict=False).save(str(tmp_path / "model.pt"))
    with pytest.raises(Unsupported, match="a size that values decide") as refusal:
        convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out", input=["x:1,5,4"])
    assert "lstm" in refusal.value.subject
    assert refusal.value.location
    assert "a largest length with a mask" in refusal.value.ways_out[0]
