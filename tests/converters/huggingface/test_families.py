"""Every family: the graph against the float64 reference, that against transformers where it is installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from decoder_folders import BARE, CONFIGS, decoder_folder

import convertkit
from convertkit.converters.huggingface.families import FAMILIES, decoder_of
from convertkit.converters.huggingface.parameters import Parameters
from convertkit.converters.huggingface.reference import compute
from convertkit.converters.huggingface.settings import Settings
from convertkit.converters.huggingface.source import DecoderSource
from convertkit.recipe import ExportOptions

RECORDED = Path(__file__).parent / "transformers.json"
"""What transformers 5.24 gives, so that it need not be installed; ``CONVERTKIT_RECORD=1`` writes it anew."""
IDS = np.random.default_rng(7).integers(0, 131, (2, 23))


def reference(folder: Path, ids: np.ndarray, split: int) -> np.ndarray:
    """Logits of all places, computed in two calls."""
    decoder = decoder_of(Settings.of(folder))
    parameters = Parameters(folder, decoder)
    empty = np.zeros((len(ids), decoder.groups, 0, decoder.head_size))
    first, cache = compute(decoder, parameters, ids[:, :split], ((empty, empty),) * len(decoder.layers))
    second, _ = compute(decoder, parameters, ids[:, split:], cache)
    return np.concatenate([first, second], 1)


def test_every_family_has_a_configuration():
    assert {config["model_type"] for config in CONFIGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", CONFIGS)
def test_graph_computes_what_the_reference_does(tmp_path, name):
    folder = decoder_folder(tmp_path / name, name)
    source = DecoderSource(folder, ExportOptions(str(folder)))
    made = source.stage().run(source.artifact, tmp_path)
    onnx.checker.check_model(str(made.path), full_check=True)
    assert [(spec.name, spec.shape, spec.dtype) for spec in (*made.inputs, *made.outputs)] == [
        (spec.name, spec.shape, spec.dtype) for spec in (*source.artifact.inputs, *source.artifact.outputs)
    ]
    session = ort.InferenceSession(str(made.path))
    caches = [spec for spec in made.inputs if spec.name != "input_ids"]
    feed = {spec.name: np.zeros((2, spec.shape[1], 0, spec.shape[3]), np.float32) for spec in caches}
    names = [spec.name for spec in made.outputs]
    first = dict(zip(names, session.run(None, {**feed, "input_ids": IDS[:, :14]}), strict=True))
    grown = {name.replace("present", "past_key_values"): value for name, value in first.items() if name != "logits"}
    second = dict(zip(names, session.run(None, {**grown, "input_ids": IDS[:, 14:]}), strict=True))
    found = np.concatenate([first["logits"], second["logits"]], 1)
    expected = reference(folder, IDS, 9)
    assert np.abs(found - expected).max() < 3e-6 * np.abs(expected).max()
    assert np.abs(expected).std() > 0.1


def test_windows_and_places_matter(tmp_path):
    """Which the comparison could not tell if the drawn weights looked at nothing but the last token."""
    folder = decoder_folder(tmp_path / "a", "mistral")
    other = decoder_folder(tmp_path / "b", "mistral", sliding_window=8)
    far = decoder_folder(tmp_path / "c", "mistral", rope_theta=20000.0)
    base = reference(folder, IDS, 9)
    for each in (other, far):
        assert np.abs(reference(each, IDS, 9) - base).max() > 1e-3


@pytest.mark.parametrize("name", [*CONFIGS, *BARE])
def test_reference_computes_what_transformers_said(tmp_path, name):
    """The first logits of each sequence's last place, as the test below has recorded them."""
    expected = np.array(json.loads(RECORDED.read_text())[name])
    found = reference(decoder_folder(tmp_path / name, name), IDS, 11)
    assert np.abs(found[:, -1, : expected.shape[1]] - expected).max() < 5e-6 * np.abs(found).max()


@pytest.mark.parametrize("name", [*CONFIGS, *BARE])
def test_reference_computes_what_transformers_does(tmp_path, name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    folder = decoder_folder(tmp_path / name, name)
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    with torch.no_grad():
        expected = model.eval().double()(torch.from_numpy(IDS)).logits.numpy()
    found = reference(folder, IDS, 11)
    bound = 2e-6 if name in CONFIGS else 5e-6  # norms and softmax are float32 there; Gemma's bare heads are of 256
    assert np.abs(found - expected).max() < bound * np.abs(expected).max()
    if "CONVERTKIT_RECORD" in os.environ:
        known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        RECORDED.write_text(json.dumps({**known, name: expected[:, -1, :5].round(7).tolist()}, indent=1) + "\n")


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_export_with_a_cache(tmp_path, target):
    if target == "tflite":
        pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    result = convertkit.export(decoder_folder(tmp_path / "model", "gemma2"), target, output=tmp_path / "out")
    assert [spec.name for spec in result.artifact.outputs][:2] == ["logits", "present.0.key"]
    assert result.artifact.inputs[1].shape == ("batch", 2, "past", 16)
