"""Packages for LiteRT-LM: what it generates from them, what they hold, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from decoder_folders import CONFIGS, decoder_folder, stories_folder

import convertkit
from convertkit import plugins
from convertkit.errors import MissingFramework, ParityError, SourceError, ToolError, Unsupported, UsageError

pytest.importorskip("litert_lm", reason="LiteRT-LM is not installed")
pytest.importorskip("litert_lm_builder", reason="LiteRT-LM's schema is not installed")

from ai_edge_litert import schema_py_generated as schema
from litert_lm_builder.runtime.proto import llm_metadata_pb2

from convertkit.targets.litert_lm import package, runtime
from convertkit.targets.litert_lm.metadata import begins_texts, letters_tokenizer
from convertkit.workers.process import Worker

_FAMILIES = ("llama-long", "qwen2", "gemma2", "gemma3", "gpt2", "gpt_neox-serial")
"""Every form of attention and of positions; the others are of the nightly run."""


def folder_of(tmp_path: Path, name: str, **settings: object) -> Path:
    """A decoder whose tokens are letters from A on."""
    folder = decoder_folder(tmp_path / "model", name, **settings)
    (folder / "tokenizer.json").write_bytes(letters_tokenizer(131, ord("A")))
    return folder


def exported(folder: Path, out: Path, **options: object):
    return convertkit.export(folder, "litert-lm", output=out, **options)


@pytest.mark.parametrize(
    "name", [name if name in _FAMILIES else pytest.param(name, marks=pytest.mark.nightly) for name in CONFIGS]
)
def test_every_family_generates_what_the_graph_does(tmp_path, name):
    told = exported(folder_of(tmp_path, name), tmp_path / "out").report["steps"][-1]["diagnosis"]["generation"]
    assert told["tokens"] >= 200
    assert told["same"] == told["tokens"]


def test_one_set_of_weights_and_a_cache_in_place(tmp_path):
    made = exported(folder_of(tmp_path, "qwen2"), tmp_path / "out", target_options={
        "litert-lm": {"context": 113, "prefill": (4, 16)},
    })  # fmt: skip
    data = package.section_of(made.artifact.path, package.MODEL)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    assert [each.signatureKey.decode() for each in model.signatureDefs] == ["prefill_4", "prefill_16", "decode"]
    large = [buffer for buffer in model.buffers if buffer.data is not None and len(buffer.data) > 131 * 40]
    assert len({bytes(buffer.data) for buffer in large}) == len(large), "no weight lies twice in the file"
    codes = [model.operatorCodes[each.opcodeIndex].builtinCode for each in model.subgraphs[2].operators]
    assert codes.count(schema.BuiltinOperator.DYNAMIC_UPDATE_SLICE) == 6
    decode = model.signatureDefs[2]
    shapes = {each.name.decode(): model.subgraphs[2].tensors[each.tensorIndex].shape for each in decode.inputs}
    assert list(shapes["tokens"]) == [1, 1]
    assert list(shapes["kv_cache_k_0"]) == [1, 2, 128, 8], "a padded prompt does not reach beyond the cache"
    assert [each.name.decode() for each in decode.outputs][:2] == ["logits", "kv_cache_k_0"]
    assert "logits" not in [each.name.decode() for each in model.signatureDefs[0].outputs]


def test_prompts_up_to_the_last_place(tmp_path):
    """The last piece of a prompt begins near the end of the context, where its padding has to have room."""
    folder = folder_of(tmp_path, "mistral")
    out = exported(folder, tmp_path / "out", target_options={"litert-lm": {"context": 113, "prefill": (16,)}}).artifact
    portable = convertkit.export(folder, "onnxruntime", output=tmp_path / "ort").artifact
    rng = np.random.default_rng(3)
    caches = {spec.name: rng.standard_normal((1, 2, 1, 16)).astype(np.float32) for spec in out.inputs[1:]}
    feed = {"input_ids": rng.integers(0, 131, (1, 112)), **caches}
    with plugins.runner(out) as one, plugins.runner(portable) as other:
        found, expected = one.run(feed), other.run(feed)
        with pytest.raises(ToolError, match="140 tokens do not fit into the cache of 128"):
            one.run({**feed, "input_ids": np.zeros((1, 139), np.int64)})
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() < 1e-4 * np.abs(value).max(), name


def test_same_bytes_twice(tmp_path):
    folder = folder_of(tmp_path, "phi3")
    one, two = (exported(folder, tmp_path / name).artifact.path for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert (one.parent / "README.md").read_bytes() == (two.parent / "README.md").read_bytes()


def test_what_the_package_says(tmp_path):
    folder = folder_of(tmp_path, "llama")
    (folder / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "eos_token_id": [2, 5]})
    )
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    words = {"add_bos_token": True, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    made = exported(folder, tmp_path / "out")
    told = llm_metadata_pb2.LlmMetadata.FromString(package.section_of(made.artifact.path, package.METADATA))
    assert list(told.start_token.token_ids.ids) == [1]
    assert [list(each.token_ids.ids) for each in told.stop_tokens] == [[2], [5]]
    assert told.max_num_tokens == 512, "the source's whole context"
    assert told.jinja_prompt_template == template
    chosen = told.sampler_params
    assert (chosen.k, round(chosen.p, 6), round(chosen.temperature, 6)) == (20, 0.9, 0.7)
    assert not [note for note in made.report["notes"] if "template" in note]
    with Worker(runtime.SERVICE) as worker:
        assert worker.call("load", {"package": str(made.artifact.path), "threads": 1}).value == 1
        assert worker.call("tokenize", {"text": "CBD"}).value == [2, 1, 3]


def test_a_text_ends_where_the_package_says(tmp_path):
    """The runtime stops by the metadata alone: with the token that the graph chooses first as an end, nothing comes."""
    folder = folder_of(tmp_path, "qwen3")
    longer = exported(folder, tmp_path / "one").artifact.path
    with Worker(runtime.SERVICE) as worker:
        worker.call("load", {"package": str(longer), "threads": 1})
        text = worker.call("generate", {"prompt": "HELLO", "most": 10}).value
        assert len(text) == 10
        third = ord(text[2]) - ord("A")
        ended = exported(folder_of(tmp_path, "qwen3", eos_token_id=[third]), tmp_path / "two").artifact.path
        worker.call("load", {"package": str(ended), "threads": 1})
        assert worker.call("generate", {"prompt": "HELLO", "most": 10}).value == text[: text.index(text[2])]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tokenizer_config.json": {"add_bos_token": False}}, None),
        ({"tokenizer_config.json": {"add_bos_token": True}}, 1),
        ({"tokenizer.json": {}}, None),
        ({"tokenizer.json": {"post_processor": {"type": "ByteLevel"}}}, None),
        ({"tokenizer.model": {}}, 1),
        (
            {
                "tokenizer.json": {
                    "post_processor": {
                        "type": "Sequence",
                        "processors": [
                            {"type": "ByteLevel"},
                            {
                                "type": "TemplateProcessing",
                                "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                                "special_tokens": {"<s>": {"ids": [1]}},
                            },
                        ],
                    }
                }
            },
            1,
        ),
        (
            {
                "tokenizer.json": {
                    "post_processor": {
                        "type": "TemplateProcessing",
                        "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}],
                        "special_tokens": {"<s>": {"ids": [1]}},
                    }
                }
            },
            None,
        ),
    ],
)
def test_what_begins_a_text_is_what_the_tokenizer_puts_there(tmp_path, settings, expected):
    for name, table in settings.items():
        (tmp_path / name).write_text(json.dumps(table))
    assert begins_texts(tmp_path, 1) == expected
    assert begins_texts(tmp_path, None) is None


@pytest.mark.case
@pytest.mark.parametrize("precision", ["float32", "w8", "w4"])
def test_stories(cases, tmp_path, precision):
    folder = stories_folder(cases / "stories260k" / "stories260K.bin", tmp_path / "model")
    (folder / "tokenizer.json").write_bytes(letters_tokenizer(512, 0x4E00))
    options = {} if precision == "float32" else {precision: True}
    made = exported(folder, tmp_path / "out", **options)
    told = made.report["steps"][-1]["diagnosis"]["generation"]
    assert told["tokens"] >= 200
    assert told["same"] >= {"float32": told["tokens"], "w8": 195, "w4": 180}[precision]
    if precision == "float32":
        expected = np.load(cases / "stories260k" / "greedy_ids.npy")[0].tolist()
        with Worker(runtime.SERVICE) as worker:
            worker.call("load", {"package": str(made.artifact.path), "threads": 1})
            text = worker.call("generate", {"prompt": chr(0x4E00 + expected[0]), "most": len(expected) - 1}).value
        assert [ord(letter) - 0x4E00 for letter in text] == expected[1:]


def test_a_wrong_model_is_caught_by_its_tokens(tmp_path, monkeypatch):
    """Only what the runtime gets is broken: the package that is compared has another model than the one delivered."""
    from convertkit.targets.litert_lm import stage

    folder = folder_of(tmp_path, "llama")
    other = exported(decoder_copy(tmp_path / "other"), tmp_path / "wrong").artifact.path
    wrong = package.model_section(package.section_of(other, package.MODEL))
    monkeypatch.setattr(stage, "_model", lambda made, place: wrong)
    with pytest.raises(ParityError, match=r"token \d+ that LiteRT-LM"):
        exported(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def decoder_copy(place: Path) -> Path:
    """A decoder of the same sizes and of other weights."""
    folder = decoder_folder(place, "llama-bare")
    (folder / "tokenizer.json").write_bytes(letters_tokenizer(131, ord("A")))
    return folder


def test_the_program_of_the_readme_runs(tmp_path):
    out = exported(folder_of(tmp_path, "gemma"), tmp_path / "out").artifact.path.parent
    program = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=out, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.strip()) > 3


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"eos_token_id": None}, Unsupported, "no eos_token_id .* LiteRT-LM"),
        ({"eos_token_id": 131}, SourceError, "the token 131 is not one of the 131"),
    ],
)
def test_refuses(tmp_path, settings, error, sentence):
    with pytest.raises(error, match=sentence):
        exported(folder_of(tmp_path, "llama", **settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refuses_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(Unsupported, match=r"no tokenizer\.json or tokenizer\.model"):
        exported(decoder_folder(tmp_path / "model", "llama"), tmp_path / "out")


def test_a_tokenizer_that_does_not_load_ends_the_export(tmp_path):
    folder = folder_of(tmp_path, "llama")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(Unsupported, match=r"^tokenizer\.json: LiteRT-LM [\d.]+ does not load it"):
        exported(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_template_that_does_not_render_is_told(tmp_path):
    folder = folder_of(tmp_path, "llama")
    (folder / "chat_template.jinja").write_text("{% for %}")
    made = exported(folder, tmp_path / "out")
    assert [note for note in made.report["notes"] if "does not render the source's chat template" in note]
    assert "does not render" in (made.artifact.path.parent / "README.md").read_text()


def test_refuses_sources_without_a_folder(tmp_path, digits):
    with pytest.raises(UsageError, match=r"decoder's folder with config\.json"):
        convertkit.export(digits.model, "litert-lm", output=tmp_path / "out")
    with pytest.raises(UsageError, match="at least 1"):
        exported(folder_of(tmp_path, "llama"), tmp_path / "out", target_options={"litert-lm": {"context": "0"}})


def test_absent_runtime_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.litert_lm.find_spec", lambda name: None if "lm" in name else object())
    with pytest.raises(MissingFramework, match="litert-lm-api is not installed") as caught:
        exported(folder_of(tmp_path, "llama"), tmp_path / "out")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("broken", [b"", b"TFL3" + bytes(64), b"LITERTLM" + bytes(8)])
def test_a_file_that_is_not_a_package_is_told(tmp_path, broken):
    (tmp_path / "x.litertlm").write_bytes(broken)
    with pytest.raises(ToolError, match="is not a LiteRT-LM package"):
        package.section_of(tmp_path / "x.litertlm", package.MODEL)


def test_a_file_that_is_cut_or_has_a_broken_header_is_told(tmp_path):
    """FlatBuffers reads whatever a header's numbers point at."""
    path = tmp_path / "x.litertlm"
    package.write_package(path, (package.model_section(bytes(range(256)) * 80),))
    whole = path.read_bytes()
    assert package.section_of(path, package.MODEL) == bytes(range(256)) * 80
    end = int.from_bytes(whole[24:32], "little")
    broken = [whole[:cut] for cut in (33, 40, 100, end - 1, end, end + 1, 20_000)]
    broken += [whole[:24] + value.to_bytes(8, "little") + whole[32:] for value in (0, 32, 33, 36, 1 << 60)]
    broken += [whole[:32] + bytes(end - 32) + whole[end:], whole[:32] + b"\xff" * (end - 32) + whole[end:]]
    said = r"^x\.litertlm (ends inside|is not a LiteRT-LM package: its header is broken|has no section)"
    for data in broken:
        path.write_bytes(data)
        with pytest.raises(ToolError, match=said):
            package.section_of(path, package.MODEL)


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 200_001])
def test_a_tokenizer_is_stored_in_blocks_that_no_zlib_chooses(length):
    text = bytes(place % 251 for place in range(length))
    data = package.stored(text)
    assert zlib.decompress(data) == text
    assert len(data) == 2 + 5 * max(-(-length // 65_535), 1) + length + 4
