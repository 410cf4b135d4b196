"""Small decoders of every family with random weights, as folders that transformers reads, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from convertkit.converters.huggingface.families import decoder_of
from convertkit.converters.huggingface.parameters import tensors_needed
from convertkit.converters.huggingface.settings import Settings

_SIZES = {
    "vocab_size": 131,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "max_position_embeddings": 512,
    "rms_norm_eps": 2e-5,
}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
_OF_GEMMA3 = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
}
_GPT2 = {"vocab_size": 131, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 512}
_NEOX = {**_SIZES, "num_attention_heads": 4, "num_key_value_heads": None, "rotary_pct": 0.5}
CONFIGS: dict[str, dict[str, object]] = {
    "llama": {**_SIZES, "model_type": "llama"},
    "llama-long": {
        **_SIZES, "model_type": "llama", "attention_bias": True, "mlp_bias": True, "rope_parameters": _LLAMA3,
    },
    "llama-older": {
        **_SIZES, "model_type": "llama", "rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 2.0},
    },
    "mistral": {**_SIZES, "model_type": "mistral", "head_dim": 16, "sliding_window": 7},
    "qwen2": {
        **_SIZES, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {**_SIZES, "model_type": "qwen3", "head_dim": 16, "attention_bias": True},
    "gemma": {**_SIZES, "model_type": "gemma", "head_dim": 16},
    "gemma2": {**_SIZES, "model_type": "gemma2", "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24},
    "gemma3": {
        **_SIZES, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 20,
        "rope_parameters": _OF_GEMMA3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "phi3": {
        **_SIZES, "model_type": "phi3", "sliding_window": 9, "partial_rotary_factor": 0.75, "pad_token_id": 0,
    },
    "gpt2": {**_GPT2, "model_type": "gpt2"},
    "gpt_neox": {**_NEOX, "model_type": "gpt_neox"},
    "gpt_neox-serial": {**_NEOX, "model_type": "gpt_neox", "use_parallel_residual": False},
}  # fmt: skip
_NEOX_SIZES = {key: _SIZES[key] for key in _SIZES if key not in ("num_key_value_heads", "rms_norm_eps")}
BARE: dict[str, dict[str, object]] = {
    **{f"{kind}-bare": {**_SIZES, "model_type": kind} for kind in (
        "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text",
    )},
    "phi3-bare": {**_SIZES, "model_type": "phi3", "pad_token_id": 0},
    "gpt2-bare": {**_GPT2, "model_type": "gpt2"},
    "gpt_neox-bare": {**_NEOX_SIZES, "num_attention_heads": 4, "hidden_size": 64, "model_type": "gpt_neox"},
}  # fmt: skip
"""Sizes alone: everything else is what the family takes for granted."""


def decoder_folder(folder: Path, name: str, **settings: object) -> Path:
    """A folder with the configuration called ``name`` and random weights of its own seed."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**{**CONFIGS, **BARE}[name], "bos_token_id": 1, "eos_token_id": 2, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(sum(map(ord, name)))
    needed = tensors_needed(decoder_of(Settings.of(folder)))
    write_safetensors(folder / "model.safetensors", {each: _drawn(rng, each, shape) for each, shape in needed.items()})
    return folder


def _drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of a size at which no layer drowns the others."""
    spread = 0.3 if len(shape) == 1 else 1.2 / np.sqrt(shape[-1])
    base = 1.0 if len(shape) == 1 and name.endswith("norm.weight") else 0.0
    return (base + spread * rng.standard_normal(shape)).astype(np.float32)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], header: dict[str, object] | None = None) -> None:
    """The format as its description says it; ``header`` replaces entries of the table."""
    kinds = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8"}
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place, parts = 0, []
    for name, array in tensors.items():
        table[name] = {
            "dtype": kinds[array.dtype.name], "shape": list(array.shape), "data_offsets": [place, place + array.nbytes],
        }  # fmt: skip
        place += array.nbytes
        parts.append(np.ascontiguousarray(array).tobytes())
    text = json.dumps({**table, **(header or {})}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def stories_folder(file: Path, folder: Path) -> Path:
    """The trained Llama of llama2.c's ``stories260K.bin`` as a folder; rotary pairs lie beside each other there."""
    numbers = np.fromfile(file, np.float32)
    width, inner, layers, heads, groups, vocabulary, context = (int(each) for each in numbers[:7].view(np.int32))
    size = width // heads
    sizes = {
        "embed_tokens": (vocabulary, width), "input_layernorm": (layers, width),
        "self_attn.q_proj": (layers, heads * size, width), "self_attn.k_proj": (layers, groups * size, width),
        "self_attn.v_proj": (layers, groups * size, width), "self_attn.o_proj": (layers, width, heads * size),
        "post_attention_layernorm": (layers, width), "mlp.gate_proj": (layers, inner, width),
        "mlp.down_proj": (layers, width, inner), "mlp.up_proj": (layers, inner, width), "norm": (width,),
    }  # fmt: skip
    place, found = 7, {}
    for name, shape in sizes.items():
        array = numbers[place : place + int(np.prod(shape))].reshape(shape)
        place += array.size
        if name.endswith(("q_proj", "k_proj")):
            halves = array.reshape(layers, -1, size // 2, 2, width)
            array = np.ascontiguousarray(halves.swapaxes(2, 3)).reshape(shape)
        each = {f"layers.{layer}.{name}": array[layer] for layer in range(layers)}
        found |= each if name not in ("embed_tokens", "norm") else {name: array}
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama", "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": vocabulary,
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", {f"model.{name}.weight": array for name, array in found.items()})
    return folder
