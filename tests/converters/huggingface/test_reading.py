"""Folders that are not what they say: each is refused with a sentence that names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from decoder_folders import decoder_folder, write_safetensors

import convertkit
from convertkit.converters.huggingface import converter
from convertkit.converters.huggingface.families import decoder_of
from convertkit.converters.huggingface.parameters import Parameters, tensors_needed
from convertkit.converters.huggingface.settings import Settings
from convertkit.converters.huggingface.tensors import stored_tensors
from convertkit.errors import ConvertKitError, SourceError, ToolError, Unsupported


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return decoder_folder(tmp_path / "model", "llama")


def parameters(folder: Path) -> Parameters:
    return Parameters(folder, decoder_of(Settings.of(folder)))


def held(folder: Path) -> dict[str, np.ndarray]:
    return {name: np.array(tensor.read()) for name, tensor in stored_tensors(folder).items()}


def test_sniffs_by_content(folder):
    assert converter.sniff(str(folder)) == "huggingface"
    assert converter.sniff(str(folder / "config.json")) is None
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert converter.sniff(str(folder)) is None
    (folder / "config.json").write_text("[" * 100_000)
    assert converter.sniff(str(folder)) is None
    (folder / "config.json").unlink()
    assert converter.sniff(str(folder)) is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_key_value_heads": 4}, "6 heads cannot share 4"),
        ({"hidden_size": 47}, "6 heads do not divide a width of 47"),
        ({"hidden_size": "48"}, "hidden_size is '48'"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"rms_norm_eps": None}, "lacks rms_norm_eps"),
        ({"hidden_act": "mish"}, "the activation 'mish'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.py"}}, "auto_map"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary positions of the type 'yarn'"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"head_dim": 7}, "turn 7 numbers"),
        ({"model_type": "mixtral"}, "the family 'mixtral'"),
    ],
)
def test_refuses_settings(folder, settings, sentence):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    with pytest.raises(ConvertKitError, match=sentence.replace("(", r"\(")):
        decoder_of(Settings.of(folder))


def test_refuses_lacking_and_surplus_weights(folder):
    whole = held(folder)
    write_safetensors(folder / "model.safetensors", {k: v for k, v in whole.items() if "layers.1.mlp.up" not in k})
    with pytest.raises(SourceError, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight"):
        parameters(folder)
    write_safetensors(folder / "model.safetensors", {**whole, "model.layers.0.router.weight": np.ones((2, 2), "f4")})
    with pytest.raises(Unsupported, match=r"model\.layers\.0\.router\.weight, which the family llama has no use for"):
        parameters(folder)
    write_safetensors(folder / "model.safetensors", {**whole, "lm_head.weight": np.ones((131, 47), "f4")})
    with pytest.raises(SourceError, match=r"lm_head\.weight has sizes \[131, 47\]"):
        parameters(folder)
    write_safetensors(folder / "model.safetensors", {**whole, "lm_head.weight": np.ones((131, 48), "i1")})
    with pytest.raises(Unsupported, match="weights of the type I8"):
        parameters(folder)


def test_buffers_of_older_files_are_not_surplus(folder):
    write_safetensors(
        folder / "model.safetensors",
        {**held(folder), "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)},
    )
    parameters(folder)


def test_a_tied_head_may_be_stored_again_but_not_differ(tmp_path):
    folder = decoder_folder(tmp_path / "model", "gemma")
    whole = held(folder)
    embedding = whole["model.embed_tokens.weight"]
    write_safetensors(folder / "model.safetensors", {**whole, "lm_head.weight": embedding})
    parameters(folder)
    write_safetensors(folder / "model.safetensors", {**whole, "lm_head.weight": embedding + np.float32(1)})
    with pytest.raises(Unsupported, match=r"lm_head\.weight"):
        parameters(folder)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"dtype": "F32", "shape": [131, 48], "data_offsets": [0, 1 << 60]}, "does not lie in the file"),
        ({"dtype": "F32", "shape": [131, 49], "data_offsets": [0, 131 * 48 * 4]}, "which its sizes"),
        ({"dtype": "F32", "shape": [-1, 48], "data_offsets": [0, 8]}, "does not lie in the file"),
        ({"dtype": "F32", "shape": [131, 48], "data_offsets": [8, 0]}, "which its sizes"),
        ({"dtype": "F32", "shape": [131, 48]}, "its table of tensors cannot be read"),
        (7, "its table of tensors cannot be read"),
    ],
)
def test_refuses_hostile_tables(folder, entry, sentence):
    write_safetensors(folder / "model.safetensors", held(folder), {"lm_head.weight": entry})
    with pytest.raises(SourceError, match=sentence):
        stored_tensors(folder)


@pytest.mark.parametrize("content", [b"", b"1234", (1 << 60).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7) + b"[]"])
def test_refuses_what_is_not_safetensors(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(SourceError):
        stored_tensors(folder)


def test_shards_by_their_index(folder):
    whole = held(folder)
    names = list(whole)
    (folder / "model.safetensors").unlink()
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, chosen in parts.items():
        write_safetensors(folder / file, {name: whole[name] for name in chosen})
    places = {name: file for file, chosen in parts.items() for name in chosen}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert set(stored_tensors(folder)) == set(names)
    index.write_text(json.dumps({"weight_map": {**places, names[0]: "../one.safetensors"}}))
    with pytest.raises(SourceError, match="not a file beside it"):
        stored_tensors(folder)


def test_half_precision_is_computed_with_in_float32(folder):
    whole = {name: array.astype(ml_dtypes.bfloat16) for name, array in held(folder).items()}
    write_safetensors(folder / "model.safetensors", whole)
    read = parameters(folder).table("embedding")
    assert read.dtype == np.float32
    assert np.array_equal(read, whole["model.embed_tokens.weight"].astype(np.float32))


def test_weights_stay_mapped(folder):
    assert isinstance(stored_tensors(folder)["lm_head.weight"].read(), np.memmap)


def test_bare_names_of_gpt2(tmp_path):
    """The published gpt2 holds the model without its head."""
    folder = decoder_folder(tmp_path / "model", "gpt2")
    bare = {name.removeprefix("transformer."): array for name, array in held(folder).items()}
    write_safetensors(folder / "model.safetensors", {**bare, "h.0.attn.bias": np.ones((1, 1, 4, 4), np.float32)})
    parameters(folder)


def test_a_position_that_the_table_lacks_is_one_sentence(tmp_path):
    from convertkit.converters.huggingface.source import DecoderSource
    from convertkit.recipe import ExportOptions

    folder = decoder_folder(tmp_path / "model", "gpt2", n_positions=8)
    source = DecoderSource(folder, ExportOptions(str(folder)))
    feed = {spec.name: np.zeros((1, 4, 0, 12), np.float32) for spec in source.artifact.inputs}
    with pytest.raises(ToolError, match="no position 8; it has 8"):
        source.runner().run({**feed, "input_ids": np.zeros((1, 9), np.int64)})


def test_with_a_factory_the_folder_is_that_of_pytorch(folder, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ConvertKitError, match="no_such_module"):
        convertkit.export(folder, "onnxruntime", model="no_such_module:Net", output=tmp_path / "out")


def test_needed_tensors_are_told_by_the_settings(folder):
    assert set(tensors_needed(decoder_of(Settings.of(folder)))) == set(held(folder))
