"""The weights of a decoder by their roles, whatever a family calls them and however it packs them.

Every tensor of the files is accounted for: one that is lacking, that has another shape or that nothing reads is an
error, since then the folder does not hold what its configuration says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.huggingface.decoder import Decoder
from convertkit.converters.huggingface.tensors import Stored, stored_tensors
from convertkit.errors import SourceError, Unsupported

Names = Mapping[str, str]
"""Roles to names without ``.weight`` or ``.bias``; ``#`` stands for the layer."""

_LLAMA: Names = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "before": "model.layers.#.input_layernorm",
    "between": "model.layers.#.post_attention_layernorm",
    "query": "model.layers.#.self_attn.q_proj",
    "key": "model.layers.#.self_attn.k_proj",
    "value": "model.layers.#.self_attn.v_proj",
    "mixed": "model.layers.#.self_attn.o_proj",
    "query_norm": "model.layers.#.self_attn.q_norm",
    "key_norm": "model.layers.#.self_attn.k_norm",
    "gate": "model.layers.#.mlp.gate_proj",
    "up": "model.layers.#.mlp.up_proj",
    "down": "model.layers.#.mlp.down_proj",
}
_GEMMA: Names = {
    **_LLAMA,
    "after_mixed": _LLAMA["between"],
    "between": "model.layers.#.pre_feedforward_layernorm",
    "after_inner": "model.layers.#.post_feedforward_layernorm",
}
_PHI3: Names = {
    **_LLAMA,
    "packed": "model.layers.#.self_attn.qkv_proj",
    "packed_gate": "model.layers.#.mlp.gate_up_proj",
}
_GPT2: Names = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "before": "transformer.h.#.ln_1",
    "between": "transformer.h.#.ln_2",
    "packed": "transformer.h.#.attn.c_attn",
    "mixed": "transformer.h.#.attn.c_proj",
    "up": "transformer.h.#.mlp.c_fc",
    "down": "transformer.h.#.mlp.c_proj",
}
_NEOX: Names = {
    "embedding": "gpt_neox.embed_in",
    "norm": "gpt_neox.final_layer_norm",
    "head": "embed_out",
    "before": "gpt_neox.layers.#.input_layernorm",
    "between": "gpt_neox.layers.#.post_attention_layernorm",
    "packed": "gpt_neox.layers.#.attention.query_key_value",
    "mixed": "gpt_neox.layers.#.attention.dense",
    "up": "gpt_neox.layers.#.mlp.dense_h_to_4h",
    "down": "gpt_neox.layers.#.mlp.dense_4h_to_h",
}
_NAMES: Mapping[str, Names] = {
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "phi3": _PHI3,
    "gpt2": _GPT2,
    "gpt_neox": _NEOX,
}
_COMPUTED = re.compile(
    r".*\.(rotary_emb\.(.*_)?inv_freq|attention\.(masked_)?bias|attn\.(masked_)?bias|attention\.norm_factor)"
)
"""Buffers that older files hold and that follow from the configuration."""


@dataclass(frozen=True, slots=True)
class Linear:
    """``x @ weight.T + bias``: ``weight`` is (outputs, inputs), float32."""

    weight: Array
    bias: Array | None


class Parameters:
    """Reads weights as float32; the files stay mapped, and what is read is not kept."""

    def __init__(self, folder: Path, decoder: Decoder) -> None:
        """``SourceError`` where the files do not hold exactly what ``decoder`` needs."""
        self._decoder = decoder
        self._names = _NAMES.get(decoder.family, _LLAMA)
        self._tensors = _prefixed(stored_tensors(folder), self._names["embedding"])
        self._check()

    def vector(self, role: str, layer: int = 0) -> Array:
        """The weight of a norm."""
        return self._read(self._name(role, layer) + ".weight")

    def vector_bias(self, role: str, layer: int = 0) -> Array:
        """The bias of a norm with a mean."""
        return self._read(self._name(role, layer) + ".bias")

    def table(self, role: str) -> Array:
        """Embedded tokens or positions, a row each."""
        return self._read(self._name(role, 0) + ".weight")

    def linear(self, role: str, layer: int = 0) -> Linear:
        """``head``, ``query``, ``key``, ``value``, ``mixed``, ``gate``, ``up`` or ``down``."""
        if role == "head" and self._decoder.tied:
            return Linear(self.table("embedding"), None)
        packed = self._packing(role)
        name = self._name(role if packed is None else packed, layer)
        weight = self._read(name + ".weight")
        bias = self._read(name + ".bias") if name + ".bias" in self._tensors else None
        if self._decoder.family == "gpt2" and role != "head":
            weight = weight.T  # a Conv1D of GPT-2 is stored as (inputs, outputs)
        if packed is not None:
            rows = self._rows(role)
            weight, bias = weight[rows], None if bias is None else bias[rows]
        return Linear(weight, bias)

    def _packing(self, role: str) -> str | None:
        if role in ("query", "key", "value") and "packed" in self._names:
            return "packed"
        return "packed_gate" if role in ("gate", "up") and "packed_gate" in self._names else None

    def _rows(self, role: str) -> Array:
        """Which rows of a packed weight are those of a role."""
        d = self._decoder
        if role in ("gate", "up"):
            return np.arange(d.inner) + (d.inner if role == "up" else 0)
        place = ("query", "key", "value").index(role)
        if d.family == "gpt_neox":  # each head has its query, its key and its value beside each other
            return (
                np.arange(d.heads)[:, None] * 3 * d.head_size + place * d.head_size + np.arange(d.head_size)
            ).ravel()
        counts = (d.heads, d.groups, d.groups)
        return np.arange(counts[place] * d.head_size) + sum(counts[:place]) * d.head_size

    def _name(self, role: str, layer: int) -> str:
        return self._names[role].replace("#", str(layer))

    def _read(self, name: str) -> Array:
        return np.asarray(self._tensors[name].read(), np.float32)

    def _check(self) -> None:
        wanted = tensors_needed(self._decoder)
        for name, shape in wanted.items():
            if name not in self._tensors:
                raise SourceError(f"the weights lack {name}, which the configuration asks for")
            if (found := self._tensors[name].shape) != shape:
                raise SourceError(f"{name} has sizes {list(found)}; the configuration says {list(shape)}")
            self._tensors[name].read()
        spare = [name for name in self._tensors if name not in wanted and not _COMPUTED.fullmatch(name)]
        if self._decoder.tied:
            spare = [name for name in spare if not self._is_embedding_again(name)]
        if spare:
            raise Unsupported(f"the weights hold {spare[0]}, which the family {self._decoder.family} has no use for")

    def _is_embedding_again(self, name: str) -> bool:
        """Whether this is a tied head that was stored all the same, with the numbers of the embedding."""
        embedding = self._tensors[self._names["embedding"] + ".weight"]
        stored = self._tensors[name]
        if name != self._names["head"] + ".weight" or stored.shape != embedding.shape:
            return False
        return bool(np.array_equal(stored.read(), embedding.read()))


def tensors_needed(d: Decoder) -> dict[str, tuple[int, ...]]:
    """Names and shapes of everything that the decoder reads, as its family stores it."""
    names = _NAMES.get(d.family, _LLAMA)
    found: dict[str, tuple[int, ...]] = {names["embedding"] + ".weight": (d.vocabulary, d.width)}
    if d.positions:
        found[names["positions"] + ".weight"] = (d.context, d.width)
    if not d.tied:
        found[names["head"] + ".weight"] = (d.vocabulary, d.width)
    norms = {"before": d.width, "between": d.width}
    norms |= {"after_mixed": d.width, "after_inner": d.width} if d.sandwich else {}
    norms |= {"query_norm": d.head_size, "key_norm": d.head_size} if d.head_norms else {}
    found |= _norm(d, names["norm"], d.width)
    for layer in range(len(d.layers)):
        for role, size in norms.items():
            found |= _norm(d, names[role].replace("#", str(layer)), size)
        for role, (outputs, inputs, bias) in _products(d, names).items():
            name = names[role].replace("#", str(layer))
            found[name + ".weight"] = (inputs, outputs) if d.family == "gpt2" else (outputs, inputs)
            if bias:
                found[name + ".bias"] = (outputs,)
    return found


def _norm(d: Decoder, name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{part}": (size,) for part in (("weight", "bias") if d.norm.kind == "layer" else ("weight",))}


def _products(d: Decoder, names: Names) -> dict[str, tuple[int, int, bool]]:
    """Outputs, inputs and whether there is a bias, for each product of a layer as it is stored."""
    mixed, group = d.heads * d.head_size, d.groups * d.head_size
    found: dict[str, tuple[int, int, bool]] = {}
    if "packed" in names:
        found["packed"] = (mixed + 2 * group, d.width, d.query_bias)
    else:
        sizes = {"query": mixed, "key": group, "value": group}
        found |= {role: (size, d.width, d.query_bias) for role, size in sizes.items()}
    if "packed_gate" in names:
        found["packed_gate"] = (2 * d.inner, d.width, d.inner_bias)
    else:
        found |= dict.fromkeys(("gate", "up") if d.gated else ("up",), (d.inner, d.width, d.inner_bias))
    return {**found, "mixed": (d.width, mixed, d.output_bias), "down": (d.width, d.inner, d.inner_bias)}


def _prefixed(tensors: Mapping[str, Stored], embedding: str) -> dict[str, Stored]:
    """Under the names of the model with its head, where the files are those of the model without it."""
    prefix, _, rest = embedding.partition(".")
    if f"{rest}.weight" not in tensors:
        return dict(tensors)
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
