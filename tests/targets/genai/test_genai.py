"""Folders for ONNX Runtime GenAI: what it generates, how, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from decoder_folders import CONFIGS, decoder_folder, stories_folder
from onnx import TensorProto, helper

import convertkit
from convertkit import plugins
from convertkit.errors import MissingFramework, ParityError, SourceError, Unsupported, UsageError
from convertkit.targets.decoders import generation
from convertkit.targets.genai import products
from convertkit.targets.genai.generation import GenaiGenerator

genai = pytest.importorskip("onnxruntime_genai", reason="ONNX Runtime GenAI is not installed")

_WIDER: dict[str, dict[str, object]] = {
    "gpt2": {"n_embd": 64}, "gpt_neox": {"hidden_size": 64}, "gpt_neox-serial": {"hidden_size": 64},
}  # fmt: skip
"""Heads of 16 numbers: those of 12 are refused."""


def folder_of(tmp_path: Path, name: str, **settings: object) -> Path:
    return decoder_folder(tmp_path / "model", name, **{**_WIDER.get(name, {}), **settings})


def delivered(folder: Path, out: Path, **options: object) -> Path:
    return convertkit.export(folder, "genai", output=out, **options).artifact.path.parent


def greedy(folder: Path, prompt: list[int], length: int) -> list[int]:
    model = genai.Model(str(folder))
    asked = genai.GeneratorParams(model)
    asked.set_search_options(max_length=length, do_sample=False)
    generator = genai.Generator(model, asked)
    generator.append_tokens(np.array(prompt, np.int32))
    assert generator.get_output("present.0.key").shape[2] == length, "the cache is one buffer from the start"
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_generates_what_the_graph_does(tmp_path, name):
    result = convertkit.export(folder_of(tmp_path, name), "genai", output=tmp_path / "out")
    told = result.report["steps"][-1]["diagnosis"]["generation"]
    assert told["tokens"] >= 200
    assert told["same"] == told["tokens"]
    kinds = [node.op_type for node in onnx.load(result.artifact.path).graph.node]
    assert kinds.count("GroupQueryAttention") == 3
    assert "Softmax" not in kinds


def test_tokens_are_those_of_the_onnx_with_a_cache(tmp_path):
    folder = folder_of(tmp_path, "gemma2")
    portable = convertkit.export(folder, "onnxruntime", output=tmp_path / "ort").artifact
    tokens = [1, 7, 2]
    with plugins.runner(portable) as runner:
        feed = {spec.name: np.zeros((1, 2, 0, 16), np.float32) for spec in portable.inputs}
        given = {**feed, "input_ids": np.array([tokens])}
        while len(tokens) < 60 and tokens[3:][-1:] != [2]:
            outputs = runner.run(given)
            tokens.append(int(outputs["logits"][0, -1].argmax()))
            grown = {name: outputs[name.replace("past_key_values", "present")] for name in feed if name != "input_ids"}
            given = {**grown, "input_ids": np.array([[tokens[-1]]])}
    assert greedy(delivered(folder, tmp_path / "out"), tokens[:3], 60) == tokens


def test_same_bytes_twice(tmp_path):
    folder = folder_of(tmp_path, "qwen2")
    one, two = (delivered(folder, tmp_path / name) for name in ("one", "two"))
    for name in ("model.onnx", "genai_config.json", "README.md"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_the_program_of_the_readme_ends_within_the_context(tmp_path):
    out = delivered(folder_of(tmp_path, "qwen2"), tmp_path / "out")
    text = (out / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=out, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    context = json.loads((out / "genai_config.json").read_text())["model"]["context_length"]
    assert f"max_length={min(1000, context)}" in program
    assert 3 < len(ran.stdout.strip("[] \n").split()) <= context


@pytest.mark.case
@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_stories_in_four_bits(cases, tmp_path, activations):
    folder = stories_folder(cases / "stories260k" / "stories260K.bin", tmp_path / "model")
    made = convertkit.export(
        folder, "genai", w4=True, output=tmp_path / "out", target_options={"genai": {"activations": activations}}
    )
    levels = [
        {attribute.name: attribute.i for attribute in node.attribute}["accuracy_level"]
        for node in onnx.load(made.artifact.path).graph.node
        if node.op_type == "MatMulNBits"
    ]
    assert levels == [{"float32": 1, "int8": 4}[activations]] * (5 * 7 + 1)
    told = made.report["steps"][-1]["diagnosis"]["generation"]
    assert told["same"] == 200 if activations == "float32" else told["same"] >= 180


@pytest.mark.case
def test_stories_generates_the_known_story(cases, tmp_path):
    folder = stories_folder(cases / "stories260k" / "stories260K.bin", tmp_path / "model")
    expected = np.load(cases / "stories260k" / "greedy_ids.npy")[0].tolist()
    assert greedy(delivered(folder, tmp_path / "out"), expected[:1], len(expected)) == expected


def test_a_wrong_graph_is_caught_by_its_tokens(tmp_path, monkeypatch):
    """Only the delivered file is broken: its values are not those of the layer's own cache."""
    from convertkit.targets.genai import stage

    def broken(model, level):
        for node in model.graph:
            if node.op_type == "GroupQueryAttention":
                node.attributes["scale"] = ir.AttrFloat32("scale", 1.5 * node.attributes.get_float("scale"))
        return 0

    monkeypatch.setattr(stage, "pack_products", broken)
    with pytest.raises(ParityError, match=r"logits|token \d+ that ONNX Runtime GenAI"):
        convertkit.export(folder_of(tmp_path, "llama"), "genai", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_logit_that_is_not_a_number_is_caught(tmp_path, monkeypatch):
    """Though no token is chosen by it."""
    generated = GenaiGenerator.generate

    def broken(*given):
        for step in generated(*given):
            step.logits[0 if step.token else 1] = np.nan
            yield step

    monkeypatch.setattr(GenaiGenerator, "generate", broken)
    with pytest.raises(ParityError, match=r"^token 1: logits of ONNX Runtime GenAI [\d.]+ are NaN or infinite"):
        convertkit.export(folder_of(tmp_path, "llama"), "genai", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_prompt_may_end_in_the_token_that_ends_texts(tmp_path, monkeypatch):
    """GenAI takes the logits in front of tokens that fill rows, so none may count as one of those."""
    from convertkit.targets.genai import configuration

    folder = folder_of(tmp_path, "llama")
    assert (
        json.loads((delivered(folder, tmp_path / "out") / "genai_config.json").read_text())["model"]["pad_token_id"]
        == -1
    )
    monkeypatch.setattr(configuration, "_NO_TOKEN", 2)
    with pytest.raises(ParityError, match="GenAI"):
        delivered(folder, tmp_path / "wrong")


def test_tokenizer_is_carried_and_loaded(tmp_path):
    folder = folder_of(tmp_path, "llama")
    letters = {letter: place + 3 for place, letter in enumerate("abcd")}
    model = {"type": "BPE", "vocab": {"<u>": 0, "<s>": 1, "</s>": 2, **letters, "ab": 7}, "merges": ["a b"]}
    added = [
        {
            "id": place,
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for place, text in enumerate(("<u>", "<s>", "</s>"))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    whole = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    words = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<u>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.7, "eos_token_id": [2, 5]}))
    made = convertkit.export(folder, "genai", output=tmp_path / "out")
    out = made.artifact.path.parent
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    tokenizer = genai.Tokenizer(genai.Model(str(out)))
    assert list(tokenizer.encode("abdc")) == [7, 6, 5]
    assert tokenizer.decode(np.array([7, 6, 5], np.int32)) == "abdc"
    assert not any("tokenizer" in note for note in made.report["notes"])
    config = json.loads((out / "genai_config.json").read_text())
    assert config["model"]["eos_token_id"] == [2, 5]
    assert config["search"]["temperature"] == 0.7


def test_a_tokenizer_that_does_not_load_is_told(tmp_path):
    folder = folder_of(tmp_path, "llama")
    (folder / "tokenizer.json").write_text("{}")
    made = convertkit.export(folder, "genai", output=tmp_path / "out")
    assert any("GenAI loads no tokenizer" in note for note in made.report["notes"])
    assert "is not one that GenAI loads" in (made.artifact.path.parent / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "settings", "error", "sentence"),
    [
        ("llama", {"eos_token_id": None}, Unsupported, "no eos_token_id"),
        ("llama", {"eos_token_id": 131}, SourceError, "the token 131 is not one of the 131"),
        ("llama", {"bos_token_id": "1"}, SourceError, "the token '1'"),
        ("mistral", {"head_dim": 12}, Unsupported, "heads of 12 numbers"),
    ],
)
def test_refuses(tmp_path, name, settings, error, sentence):
    with pytest.raises(error, match=sentence):
        convertkit.export(folder_of(tmp_path, name, **settings), "genai", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refuses_sources_without_a_folder(tmp_path, digits):
    with pytest.raises(UsageError, match=r"decoder's folder with config\.json"):
        convertkit.export(digits.model, "genai", output=tmp_path / "out")


def test_absent_runtime_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.genai.find_spec", lambda name: None)
    with pytest.raises(MissingFramework, match="onnxruntime-genai is not installed") as caught:
        convertkit.export(folder_of(tmp_path, "llama"), "genai", output=tmp_path / "out")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 5), (172, 7), (33, 3)])
def test_packed_weights_are_the_integers(inputs, outputs):
    """MatMulNBits itself unpacks them, where the last block is not full, too."""
    rng = np.random.default_rng(inputs)
    integers = rng.integers(-7, 8, (outputs, inputs)).astype(np.int8)
    blocks = -(-inputs // 32)
    scales = rng.uniform(0.5, 2, (outputs, blocks)).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        domain="com.microsoft",
        K=inputs,
        N=outputs,
        bits=4,
        block_size=32,
        accuracy_level=1,
    )
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, outputs])],
        [
            onnx.numpy_helper.from_array(products.packed_bytes(integers), "w"),
            onnx.numpy_helper.from_array(scales.reshape(-1), "s"),
        ],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    session = ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    x = rng.standard_normal((2, inputs)).astype(np.float32)
    whole = integers * np.repeat(scales, 32, 1)[:, :inputs]
    assert np.allclose(session.run(None, {"x": x})[0], x @ whole.T, rtol=0, atol=1e-4)


def test_generated_in_words():
    same = generation.Generated(200, 2, 200, 1e-7)
    assert same.chosen == "200 tokens of 2 texts, 200 of them exactly as the graph chooses"
    assert replace(same, same=199).chosen.endswith("the others within rounding")
