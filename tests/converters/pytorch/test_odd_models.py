"""Habits of real modules: structured inputs, half types, state that is not a buffer, odd batches, wrapped weights."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import odd_models
import pytest

import convertkit
from convertkit import plugins
from convertkit.errors import SourceError, Unsupported, UsageError
from convertkit.state import initial_state

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = Path(__file__).resolve().parent


def _exported(name: str, folder: Path, target: str = "onnxruntime", **given) -> convertkit.Result:
    return convertkit.export(f"odd_models:{name}", target, output=folder / "out", **given)


def _notes(result: convertkit.Result) -> str:
    return " ".join(result.report["notes"])


def _floats(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _shapes(specs) -> dict[str, tuple]:
    return {spec.name: tuple(spec.shape) for spec in specs}


def test_dicts_and_nested_tuples(tmp_path: Path) -> None:
    import torch

    result = _exported("Structured", tmp_path)
    names = ["x_a", "x_b", "more_0", "more_1_0"]
    assert _shapes(result.artifact.inputs) == dict.fromkeys(names, ("N", 4))
    assert [spec.name for spec in result.artifact.outputs] == ["sum", "same", "difference"]
    feed = {name: _floats(3, 4, seed=place) for place, name in enumerate(names)}
    a, b, c, d = (torch.from_numpy(value) for value in feed.values())
    with torch.no_grad():
        expected = odd_models.Structured()({"a": a, "b": b}, (c, (d,)))
    got = result.run(feed)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "dtype", "within"), [("Brain", "float32", 0.03), ("Half", "float16", 0.004)])
def test_half_types_are_computed_in_float32(tmp_path: Path, name: str, dtype: str, within: float) -> None:
    import torch

    result = _exported(name, tmp_path)
    assert [spec.dtype for spec in (*result.artifact.inputs, *result.artifact.outputs)] == [dtype, dtype]
    x = _floats(3, 8).astype(dtype)
    module = getattr(odd_models, name)().float()
    with torch.no_grad():
        expected = module(torch.from_numpy(x).float()).numpy()
    assert np.abs(result.run({"x": x})["output"] - expected).max() < within * np.abs(expected).max()


def test_numbers_and_lists_are_state(tmp_path: Path) -> None:
    import torch

    result = _exported("Counting", tmp_path)
    assert {spec.name for spec in result.artifact.inputs} == {
        *("x", "state.position", "state.cache.0", "state.cache.1"),
    }
    state, module = dict(initial_state(result.artifact)), odd_models.Counting()
    with plugins.runner(result.artifact) as runner, torch.no_grad():
        for turn in range(5):
            x = _floats(1, 1, 4, seed=turn)
            outputs = runner.run({"x": x, **state})
            state = {name.removeprefix("next_"): value for name, value in outputs.items() if name.startswith("next_")}
            np.testing.assert_allclose(outputs["output"], module(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)
    assert state["state.position"] == 5


def test_state_that_grows_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="the state 'past' grows from call to call"):
        _exported("Growing", tmp_path)


def test_what_is_only_written_is_no_state(tmp_path: Path) -> None:
    result = _exported("Rewriting", tmp_path)
    assert _shapes(result.artifact.inputs) == {"x": ("N", 4)}
    assert "the batch is dynamic" in _notes(result)


def test_a_batch_that_must_be_one_is_fixed_and_said_so(tmp_path: Path) -> None:
    result = _exported("OnlyOne", tmp_path)
    assert _shapes(result.artifact.inputs) == {"x": (1, 3, 4)}
    assert "the batch is fixed at 1" in _notes(result)


def test_a_batch_that_no_route_keeps_free_is_fixed_and_said_so(tmp_path: Path) -> None:
    result = _exported("Looped", tmp_path)
    assert _shapes(result.artifact.inputs) == {"x": (2, 4)}
    assert "the batch is fixed: no route to ONNX keeps it dynamic (" in _notes(result)
    attempts = result.report["steps"][0]["options"]["attempts"]
    assert [each["dynamic"] for each in attempts if each["outcome"] == "accepted"] == [False]


def test_an_example_of_batch_one_frees_the_batch(tmp_path: Path) -> None:
    result = _exported("Resized", tmp_path)
    assert _shapes(result.artifact.outputs) == {"output": ("N", 1, 24, 36)}
    assert result.report["steps"][0]["options"]["route"] == "torch.export"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Resized", "Structured", "Brain", "Half", "Counting", "Rewriting", "OnlyOne"])
def test_through_tflite(tmp_path: Path, name: str) -> None:
    _exported(name, tmp_path, "tflite")


@pytest.mark.nightly
def test_masks_of_a_traced_encoder(tmp_path: Path) -> None:
    import torch

    module = odd_models.Padded().eval()
    with torch.no_grad():
        torch.jit.trace(module, module.example_inputs, check_trace=False).save(tmp_path / "model.pt")
    result = convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out")
    assert result.report["steps"][0]["options"]["route"] == "replay"


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_nested_sequences_of_a_traced_encoder(tmp_path: Path, target: str) -> None:
    """What pads them is zero behind the encoder, and nothing sees it in there."""
    import torch

    module = odd_models.Stacked().eval()
    with torch.no_grad():
        torch.jit.trace(module, module.example_inputs, check_trace=False).save(tmp_path / "model.pt")
        result = convertkit.export(tmp_path / "model.pt", target, output=tmp_path / "out")
        for lengths in ([2, 5, 1], [5, 4]):
            x, hidden = _floats(len(lengths), 5, 8), np.arange(5) >= np.array(lengths)[:, None]
            expected = module(torch.from_numpy(x), torch.from_numpy(hidden)).numpy()
            answer = result.run({"x": x, "hidden": hidden})["output"]
            np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


def test_a_causal_mask_is_added_as_it_is(tmp_path: Path) -> None:
    import torch

    result = _exported("Causal", tmp_path)
    assert result.report["steps"][0]["options"]["route"] == "torch.export"
    x = _floats(3, 5, 8)
    with torch.no_grad():
        expected = odd_models.Causal().eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(result.run({"x": x})["output"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["onnxruntime", pytest.param("tflite", marks=pytest.mark.nightly)])
def test_the_logarithm_of_a_spectrum_is_proven(tmp_path: Path, target: str) -> None:
    import onnx
    import torch

    result = _exported("LogMel", tmp_path, target, input=["wave:N,160"])
    wave = _floats(3, 160)
    with torch.no_grad():
        expected = odd_models.LogMel()(torch.from_numpy(wave)).numpy()
    np.testing.assert_allclose(result.run({"wave": wave})["output"], expected, atol=2e-5)
    if target == "onnxruntime":
        operators = [node.op_type for node in onnx.load(result.artifact.path).graph.node]
        assert "Conv" in operators
        assert "STFT" not in operators


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_fourier_transforms_of_odd_lengths_keep_their_precision(tmp_path: Path, target: str) -> None:
    import onnx
    import torch

    result = _exported("Spectra", tmp_path, target)
    x = _floats(3, 15, 25)
    with torch.no_grad():
        expected = odd_models.Spectra()(torch.from_numpy(x).double())
    for value, got in zip(expected, result.run({"x": x}).values(), strict=True):
        assert np.abs(got - value.numpy()).max() < 1e-6 * np.abs(value.numpy()).max()
    if target == "onnxruntime":
        assert "DFT" not in [node.op_type for node in onnx.load(result.artifact.path).graph.node]


@pytest.mark.parametrize("target", ["onnxruntime", pytest.param("tflite", marks=pytest.mark.nightly)])
def test_a_projected_lstm_keeps_to_the_module(tmp_path: Path, target: str) -> None:
    import onnx
    import torch

    result = _exported("Projected", tmp_path, target)
    x = _floats(3, 4, 6)
    with torch.no_grad():
        expected = odd_models.Projected()(torch.from_numpy(x))
    for value, got in zip(expected, result.run({"x": x}).values(), strict=True):
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-4, atol=1e-6)
    if target == "onnxruntime":  # the one without projections is still one operator
        assert [node.op_type for node in onnx.load(result.artifact.path).graph.node].count("LSTM") == 1


@pytest.mark.parametrize("target", ["onnxruntime", pytest.param("tflite", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["Rotary", "Pooled"])
def test_operators_that_torchs_exporter_lacks(tmp_path: Path, name: str, target: str) -> None:
    import torch

    result = _exported(name, tmp_path, target)
    module = getattr(odd_models, name)()
    x = _floats(3, *module.example_inputs[0].shape[1:])
    with torch.no_grad():
        expected = module(torch.from_numpy(x))
    for value, got in zip(expected, result.run({"x": x}).values(), strict=True):
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["traced", "scripted", "pt2"])
def test_a_projected_lstm_of_a_file(tmp_path: Path, form: str) -> None:
    import torch

    module = odd_models.Projected().eval()
    if form == "pt2":
        torch.export.save(torch.export.export(module, module.example_inputs), tmp_path / "model.pt2")
    else:
        made = torch.jit.script(module) if form == "scripted" else torch.jit.trace(module, module.example_inputs)
        made.save(tmp_path / "model.pt")
    source = tmp_path / ("model.pt2" if form == "pt2" else "model.pt")
    convertkit.export(source, "tflite", output=tmp_path / "out", input=["x:1,4,6"])


@pytest.mark.parametrize("target", ["onnxruntime", pytest.param("tflite", marks=pytest.mark.nightly)])
def test_packed_sequences_of_a_trace(tmp_path: Path, target: str) -> None:
    import torch

    module = odd_models.Packed().eval()
    torch.jit.trace(module, module.example_inputs, check_trace=False).save(tmp_path / "model.pt")
    given = ["x:3,5,4", "lengths:3:int64[1,6)"]
    result = convertkit.export(tmp_path / "model.pt", target, input=given, output=tmp_path / "out")
    x, lengths = _floats(3, 5, 4), np.array([2, 5, 1])
    with torch.no_grad():
        expected = module(torch.from_numpy(x), torch.from_numpy(lengths))
    for value, got in zip(expected, result.run({"x": x, "lengths": lengths}).values(), strict=True):
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-4, atol=1e-6)


def test_packed_sequences_of_a_script_are_refused_with_their_line(tmp_path: Path) -> None:
    import torch

    torch.jit.script(odd_models.Packed()).save(tmp_path / "model.pt")
    given = ["x:3,5,4", "lengths:3:int64[1,6)"]
    with pytest.raises(Unsupported, match="packed sequences") as refusal:
        convertkit.export(tmp_path / "model.pt", "onnxruntime", input=given, output=tmp_path / "out")
    assert refusal.value.location.startswith("odd_models.py:")
    assert "torch.jit.trace" in refusal.value.ways_out[0]


@pytest.mark.parametrize("form", ["traced", pytest.param("factory", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("target", ["onnxruntime", pytest.param("tflite", marks=pytest.mark.nightly)])
def test_offsets_of_bags_are_drawn_as_such(tmp_path: Path, form: str, target: str) -> None:
    import torch

    module, source = odd_models.Bagged().eval(), "odd_models:Bagged"
    if form == "traced":
        source = str(tmp_path / "model.pt")
        torch.jit.trace(module, module.example_inputs, check_trace=False).save(source)
    result = convertkit.export(source, target, input=["ids::int64[0,9)"], output=tmp_path / "out")
    assert _shapes(result.artifact.inputs) == {"x": ("N", 4), "ids": (7,), "offsets": ("N",)}
    x, ids = _floats(4, 4), np.array([1, 8, 3, 3, 0, 2, 5])
    for offsets in ([0, 2, 2, 6], [0, 0, 0, 7]):
        places = np.array(offsets)
        with torch.no_grad():
            expected = module(*(torch.from_numpy(each) for each in (x, ids, places)))
        got = result.run({"x": x, "ids": ids, "offsets": places})["output"]
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_an_archive_without_its_weights_says_why(tmp_path: Path) -> None:
    import torch

    from convertkit.converters.pytorch.load.load import load

    script = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval())
    torch.jit.optimize_for_inference(script).save(tmp_path / "model.pt")
    with pytest.raises(SourceError, match=r"model\.pt holds no weights: torch\.jit\.optimize_for_inference"):
        load(str(tmp_path / "model.pt"), "torchscript", None)


def test_attention_is_two_products_and_a_softmax(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    result = _exported("Attending", tmp_path, "tflite", static={"N": 1})
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(result.artifact.path), experimental_op_resolver_type=plain)
    found = collections.Counter(each["op_name"] for each in interpreter._get_ops_details())
    arithmetic = {name: count for name, count in found.items() if name not in ("RESHAPE", "TRANSPOSE", "BROADCAST_TO")}
    expected = {"FULLY_CONNECTED": 3, "SPLIT": 1, "MUL": 2, "BATCH_MATMUL": 2, "ADD": 1, "SOFTMAX": 1}
    assert arithmetic == expected  # both factors scaled, one constant mask added: nothing is computed to make it


PREFIXES = {
    "plain": lambda state: state,
    "nested": lambda state: {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}},
    "lightning": lambda state: {
        "state_dict": {**{f"model.{name}": value for name, value in state.items()}, "loss.weight": state["norm.bias"]}
    },
    "compiled and parallel": lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
    "with an average": lambda state: {
        **{f"ema_model.{name}": value * 2 for name, value in state.items()},
        **{f"model.{name}": value for name, value in state.items()},
    },
    "shared once": lambda state: {name: value for name, value in state.items() if name != "head.weight"},
    "old batch norm": lambda state: {name: value for name, value in state.items() if "batches" not in name},
}


@pytest.mark.parametrize("form", PREFIXES)
def test_weights_under_the_names_of_wrappers(form: str) -> None:
    import torch

    from convertkit.converters.pytorch.load.weights import fill

    source, module = odd_models.Tied(), odd_models.Tied()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(1.0)
    stored = PREFIXES[form](dict(source.state_dict()))
    fill(module, stored.get("state_dict", stored), "weights.pth", "odd_models:Tied")
    for name, value in source.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name


def test_tied_weights_that_safetensors_stores_once(tmp_path: Path) -> None:
    """Its writers refuse shared memory, so files of tied models hold one of the two names."""
    import torch

    from convertkit.converters.pytorch.load.weights import fill, stored_weights

    source, module = odd_models.Tied(), odd_models.Tied()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(1.0)
    kept = {name: value.numpy() for name, value in source.state_dict().items() if name != "head.weight"}
    header, data = {}, b""
    for name, value in kept.items():
        dtype = {"float32": "F32", "int64": "I64"}[value.dtype.name]
        header[name] = {"dtype": dtype, "shape": value.shape, "data_offsets": (len(data), len(data) + value.nbytes)}
        data += value.tobytes()
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    stored = stored_weights(str(tmp_path / "model.safetensors"), "safetensors")
    fill(module, stored, "model.safetensors", "odd_models:Tied")
    for name, value in source.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name


def test_weights_that_do_not_fit_are_named() -> None:
    import torch

    from convertkit.converters.pytorch.load.weights import fill

    state = dict(odd_models.Tied().state_dict())
    state["norm.extra"] = state.pop("norm.bias")
    with pytest.raises(UsageError, match=r"it lacks norm\.bias, the module has no norm\.extra"):
        fill(odd_models.Tied(), state, "weights.pth", "odd_models:Tied")
    state["norms.bias"] = state.pop("norm.extra")
    with pytest.raises(UsageError, match=r"try   renaming, where norms\.bias in the file is norm\.bias of the module"):
        fill(odd_models.Tied(), state, "weights.pth", "odd_models:Tied")
    state = dict(odd_models.Tied().state_dict()) | {"norm.bias": torch.zeros(9)}
    with pytest.raises(UsageError, match=r"size mismatch for norm\.bias"):
        fill(odd_models.Tied(), state, "weights.pth", "odd_models:Tied")


def test_weights_of_a_part_of_the_module_are_told_as_that() -> None:
    from torch import nn

    from convertkit.converters.pytorch.load.weights import fill

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = odd_models.Tied(), nn.Linear(3, 2)

    with pytest.raises(UsageError, match=r"the part 'net', .* return Wrapped\(\)\.get_submodule\('net'\)"):
        fill(Wrapped(), dict(odd_models.Tied().state_dict()), "weights.pth", "models:Wrapped")


@pytest.mark.parametrize("form", ["pt", pytest.param("pt2", marks=pytest.mark.nightly)])
def test_torchvision_operators_without_torchvision(tmp_path: Path, form: str) -> None:
    script = HERE / "detection_archive.py"
    subprocess.run([sys.executable, "-W", "ignore", str(script), str(tmp_path)], check=True, capture_output=True)
    result = convertkit.export(
        tmp_path / f"detect.{form}", "onnxruntime", input=["image:1,3,16,16"], output=tmp_path / "out"
    )
    import onnx

    operators = {node.op_type for node in onnx.load(result.artifact.path).graph.node}
    assert operators >= {"NonMaxSuppression", "RoiAlign"}


def test_torch_is_imported_once_and_never_here(tmp_path: Path) -> None:
    """Every import of torch leaves a line; the export itself has none of it."""
    site = tmp_path / "site"
    site.mkdir()
    hook = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        f"            open({str(tmp_path / 'imports')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "sys.meta_path.insert(0, Watch())\n"
    )
    (site / "sitecustomize.py").write_text(hook)
    code = (
        "import json, os, sys, convertkit\n"
        f"convertkit.export({str(HERE.parents[2] / 'fixtures' / 'digits' / 'model.pt')!r}, 'onnxruntime', "
        f"output={str(tmp_path / 'out')!r})\n"
        "print(json.dumps([os.getpid(), 'torch' in sys.modules]))"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    parent, loaded = json.loads(done.stdout.splitlines()[-1])
    importers = [int(line) for line in (tmp_path / "imports").read_text().split()]
    assert len(importers) == 1
    assert not loaded
    assert parent not in importers


def test_float64_without_a_kernel_names_type_operator_line_and_way_out(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"float64: ONNX Runtime, .* has no Conv for it") as caught:
        _exported("Doubled", tmp_path)
    assert caught.value.location.startswith("odd_models.py:")
    assert "model.float()" in caught.value.ways_out[0]


def test_a_free_length_is_free_in_the_outputs_of_a_recurrence(tmp_path: Path) -> None:
    import torch

    result = _exported("AnyLength", tmp_path, input=["x:N,T,4"])
    assert _shapes(result.artifact.outputs) == {"output_0": ("N", "T", 6), "output_1": (1, "N", 6)}
    x = _floats(2, 11, 4)
    with torch.no_grad():
        expected = odd_models.AnyLength()(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(result.run({"x": x})["output_0"], expected, rtol=1e-5, atol=1e-6)


def test_a_model_of_recordings_is_tried_at_their_sizes(tmp_path: Path) -> None:
    result = _exported("Waveform", tmp_path, input=["x:N,L"])
    assert _shapes(result.artifact.inputs) == {"x": ("N", "L")}
    assert result.run({"x": _floats(2, 1000)})["output"].shape == (2, 2, 4)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_decibels_of_what_does_not_change(tmp_path: Path, target: str) -> None:
    import torch

    result = _exported("Decibels", tmp_path, target)
    for level in (0.0, 0.3, 1.0, -3.0):
        x = np.full((1, 8000), level, np.float32)
        (got,) = result.run({"wave": x}).values()
        with torch.no_grad():
            expected = odd_models.Decibels().double()(torch.from_numpy(x).double()).numpy()
        np.testing.assert_allclose(got, expected, rtol=0, atol=0.01)


def test_complex_results_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="the output 'output' is complex") as caught:
        _exported("Spectrum", tmp_path)
    assert "torch.view_as_real" in caught.value.ways_out[0]


def test_complex_inputs_of_a_trace_are_refused_as_such(tmp_path: Path) -> None:
    """Asked for a shape instead, the model would have been converted for real ones."""
    import torch

    module = odd_models.Phases().eval()
    torch.jit.trace(module, module.example_inputs).save(str(tmp_path / "model.pt"))
    with pytest.raises(Unsupported, match="the input 'x' is complex") as caught:
        convertkit.export(tmp_path / "model.pt", "onnxruntime", output=tmp_path / "out")
    assert "torch.view_as_complex" in caught.value.ways_out[0]
