"""The families of decoders: which settings of ``config.json`` say what.

Source of the rules: the configuration and modelling files of Hugging Face's transformers, release 5.24, which is what
the tests compare with; older releases spell some settings otherwise, and both spellings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convertkit.converters.huggingface.decoder import Activation, Decoder, Layer, Norm
from convertkit.converters.huggingface.rotary import rotation, sliding_rotation
from convertkit.converters.huggingface.settings import CONFIG, Settings
from convertkit.errors import SourceError, Unsupported

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_ONLY: Mapping[str, object] = {
    "quantization_config": None,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "use_bidirectional_attention": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "auto_map": None,
}
"""Settings that change what is computed, and the value that is understood."""
_FULL, _SLIDING = "full_attention", "sliding_attention"


def decoder_of(settings: Settings) -> Decoder:
    """What the settings describe; ``Unsupported`` or ``SourceError`` names the one that is not understood."""
    kind = settings.word("model_type")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise Unsupported(f"decoders of the family {kind!r} are not read from a folder; there are: {known}")
    settings.refuse(_ONLY)
    decoder = FAMILIES[kind](settings)
    if decoder.heads % decoder.groups:
        raise SourceError(f"{CONFIG}: {decoder.heads} heads cannot share {decoder.groups} keys and values")
    return decoder


def _llama(settings: Settings) -> Decoder:
    bias = settings.flag("attention_bias", False)
    turned = rotation(settings, _head_size(settings))
    layers = (Layer(None, turned),) * _layers(settings)
    return _plain(settings, layers, query_bias=bias, output_bias=bias, inner_bias=settings.flag("mlp_bias", False))


def _mistral(settings: Settings) -> Decoder:
    turned = rotation(settings, _head_size(settings))
    return _plain(settings, (Layer(_window(settings), turned),) * _layers(settings))


def _phi3(settings: Settings) -> Decoder:
    return _mistral(settings)


def _qwen2(settings: Settings) -> Decoder:
    return _plain(settings, _partly_sliding(settings), query_bias=True)


def _qwen3(settings: Settings) -> Decoder:
    bias = settings.flag("attention_bias", False)
    layers = _partly_sliding(settings, 128)
    return _plain(settings, layers, head_size=128, head_norms=True, query_bias=bias, output_bias=bias)


def _partly_sliding(settings: Settings, head_size: int | None = None) -> tuple[Layer, ...]:
    """Layers behind the first ``max_window_layers`` slide where the settings ask for a window at all."""
    count, turned = _layers(settings), rotation(settings, _head_size(settings, head_size))
    window = _window(settings) if settings.flag("use_sliding_window", False) else None
    kinds = settings.words("layer_types", count)
    if kinds is None:
        first = settings.whole("max_window_layers", default=28) if window is not None else count
        kinds = tuple(_FULL if place < first else _SLIDING for place in range(count))
    return tuple(Layer(window if _slides(kind) else None, turned) for kind in kinds)


def _gemma(settings: Settings) -> Decoder:
    turned = rotation(settings, _head_size(settings, 256))
    bias = settings.flag("attention_bias", False)
    return _of_gemma(settings, (Layer(None, turned),) * _layers(settings), query_bias=bias, output_bias=bias)


def _gemma2(settings: Settings) -> Decoder:
    count, turned = _layers(settings), rotation(settings, _head_size(settings, 256))
    kinds = settings.words("layer_types", count)
    kinds = kinds or tuple(_FULL if place % 2 else _SLIDING for place in range(count))
    window = _window(settings, 4096)
    layers = tuple(Layer(window if _slides(kind) else None, turned) for kind in kinds)
    bias = settings.flag("attention_bias", False)
    scale = settings.real("query_pre_attn_scalar", default=256) ** -0.5
    caps = {
        "score_cap": _cap(settings, "attn_logit_softcapping", 50.0),
        "logit_cap": _cap(settings, "final_logit_softcapping", 30.0),
    }
    return _of_gemma(settings, layers, sandwich=True, scale=scale, query_bias=bias, output_bias=bias, **caps)


def _gemma3(settings: Settings) -> Decoder:
    count, size = _layers(settings), _head_size(settings, 256)
    pattern = settings.whole("sliding_window_pattern", default=6)
    kinds = settings.words("layer_types", count)
    kinds = kinds or tuple(_SLIDING if (place + 1) % pattern else _FULL for place in range(count))
    turned = {
        _FULL: Layer(None, rotation(settings, size, theta=1_000_000.0)),
        _SLIDING: Layer(_window(settings, 4096), sliding_rotation(settings, size)),
    }
    layers = tuple(turned[_SLIDING if _slides(kind) else _FULL] for kind in kinds)
    bias = settings.flag("attention_bias", False)
    scale = settings.real("query_pre_attn_scalar", default=256) ** -0.5
    caps = {
        "score_cap": _cap(settings, "attn_logit_softcapping"),
        "logit_cap": _cap(settings, "final_logit_softcapping"),
    }
    more = {"sandwich": True, "head_norms": True, "scale": scale, "query_bias": bias, "output_bias": bias}
    return _of_gemma(settings, layers, **more, **caps)


def _of_gemma(settings: Settings, layers: tuple[Layer, ...], **more: Any) -> Decoder:
    """Norms are stored less 1, and tokens are scaled; ``gelu`` in older files means the form with tanh."""
    spelled = settings.word("hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    activation: Activation = "gelu_tanh" if spelled == "gelu" else _activation(spelled)
    norm = Norm("rms1", settings.real("rms_norm_eps"))
    scale = settings.whole("hidden_size") ** 0.5
    fixed = {"head_size": 256, "tied": True, "norm": norm, "activation": activation, "embedding_scale": scale}
    return _plain(settings, layers, **{**fixed, **more})


def _gpt2(settings: Settings) -> Decoder:
    width, heads = settings.whole("n_embd", "hidden_size"), settings.whole("n_head", "num_attention_heads")
    size = _divided(width, heads)
    return Decoder(
        family="gpt2",
        vocabulary=settings.whole("vocab_size"),
        width=width,
        heads=heads,
        groups=heads,
        head_size=size,
        inner=settings.whole("n_inner", default=4 * width),
        context=settings.whole("n_positions", "n_ctx", "max_position_embeddings"),
        norm=Norm("layer", settings.real("layer_norm_epsilon", default=1e-5)),
        activation=_activation(settings.word("activation_function", default="gelu_new")),
        layers=(Layer(None, None),) * settings.whole("n_layer", "num_hidden_layers"),
        scale=size**-0.5,
        gated=False,
        tied=settings.flag("tie_word_embeddings", True),
        positions=True,
        query_bias=True,
        output_bias=True,
        inner_bias=True,
    )


def _gpt_neox(settings: Settings) -> Decoder:
    size = _divided(settings.whole("hidden_size"), settings.whole("num_attention_heads"))
    turned = rotation(settings, size, share=0.25)
    bias = settings.flag("attention_bias", True)
    return _plain(
        settings,
        (Layer(None, turned),) * _layers(settings),
        groups=settings.whole("num_attention_heads"),
        norm=Norm("layer", settings.real("layer_norm_eps", default=1e-5)),
        activation=_activation(settings.word("hidden_act", default="gelu")),
        parallel=settings.flag("use_parallel_residual", True),
        gated=False,
        query_bias=bias,
        output_bias=bias,
        inner_bias=True,
    )


def _plain(settings: Settings, layers: tuple[Layer, ...], head_size: int | None = None, **more: Any) -> Decoder:
    """What most families spell alike; ``more`` are fields in which a family differs."""
    size = _head_size(settings, head_size)
    heads = settings.whole("num_attention_heads")
    tied = settings.flag("tie_word_embeddings", bool(more.pop("tied", False)))
    fields: dict[str, Any] = {
        "groups": settings.whole("num_key_value_heads", default=heads),
        "scale": size**-0.5,
        "tied": tied,
        **more,
    }
    if "norm" not in fields:
        fields["norm"] = Norm("rms", settings.real("rms_norm_eps"))
    if "activation" not in fields:
        fields["activation"] = _activation(settings.word("hidden_act", default="silu"))
    return Decoder(
        family=settings.word("model_type"),
        vocabulary=settings.whole("vocab_size"),
        width=settings.whole("hidden_size"),
        heads=heads,
        head_size=size,
        inner=settings.whole("intermediate_size"),
        context=settings.whole("max_position_embeddings"),
        layers=layers,
        **fields,
    )


def _layers(settings: Settings) -> int:
    return settings.whole("num_hidden_layers")


def _head_size(settings: Settings, default: int | None = None) -> int:
    if settings.has("head_dim") or default is not None:
        return settings.whole("head_dim", default=default)
    return _divided(settings.whole("hidden_size"), settings.whole("num_attention_heads"))


def _divided(width: int, heads: int) -> int:
    if width % heads:
        raise SourceError(f"{CONFIG}: {heads} heads do not divide a width of {width}")
    return width // heads


def _window(settings: Settings, default: int | None = None) -> int | None:
    if not settings.has("sliding_window") and ("sliding_window" in settings.values or default is None):
        return None
    return settings.whole("sliding_window", default=default)


def _cap(settings: Settings, key: str, default: float | None = None) -> float | None:
    """A key that is there and null asks for none."""
    if key not in settings.values:
        return default
    return settings.real(key) if settings.has(key) else None


def _slides(kind: str) -> bool:
    if kind not in (_FULL, _SLIDING):
        raise Unsupported(f"{CONFIG}: layers of the type {kind!r}", subject="layer_types")
    return kind == _SLIDING


def _activation(word: str) -> Activation:
    if word not in _ACTIVATIONS:
        raise Unsupported(f"{CONFIG}: the activation {word!r}", subject="hidden_act")
    return _ACTIVATIONS[word]


FAMILIES: Mapping[str, Callable[[Settings], Decoder]] = {
    "llama": _llama,
    "mistral": _mistral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}
