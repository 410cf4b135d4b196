"""Keras 2 configurations in the terms of Keras 3, with what Keras 2 meant by them.

Weights are loaded afterwards, so regularisers and constraints go, and initialisers are those that cost nothing.
What Keras 3 would read differently is spelled out: ``hard_sigmoid``, GRU's ``reset_after``,
operators that were recorded as layers.  An option that is not known to be harmless is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convertkit.converters.keras.archive import dicts
from convertkit.errors import SourceError, Unsupported

Config = dict[str, Any]

HARD_SIGMOID = "Keras2HardSigmoid"
"""Our name for ``clip(0.2 * x + 0.5, 0, 1)``; Keras 3 calls another function hard_sigmoid."""

OPERATION = "Keras2Operation"
"""Our layer class for TFOpLambda and SlicingOpLambda."""

_TRAINING_ONLY = re.compile(r"(.*_)?(initializer|regularizer|constraint)")
_MODELS = frozenset({"Functional", "Model", "Sequential"})
_RECURRENT = frozenset({"RNN", "LSTM", "GRU", "SimpleRNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"})
_RENAMED = {
    "Model": "Functional",
    "SyncBatchNormalization": "BatchNormalization",
    "GroupedQueryAttention": "GroupQueryAttention",
}
_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "groups": (1, None),
    "time_major": (False, None),
    "implementation": (0, 1, 2, None),
    "ragged": (False, None),
    "sparse": (False, None),
    "renorm": (False, None),
    "fused": (True, False, None),
    "virtual_batch_size": (None,),
    "input_dtype": (None,),
    "batch_input_shape": (),
    "input_length": (),
    "batch_size": (),
    "experimental_autocast": (True, False),
    "reset_after": (True, False),
    "output_mode": (None,),
    "vocabulary_size": (None,),
}
"""Options that Keras 3 no longer takes and the values at which they change nothing; empty: any value."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the translation asks the installed Keras.

    ``layer(name)`` says whether Keras has a layer of that class, ``accepts(name, option)`` whether
    its constructor takes an option.  ``keras2`` is False for files that Keras 3 wrote, whose
    activations already mean what Keras 3 means.  ``operation(name)`` is the module of an operator of
    ``keras.ops`` that a functional model may hold beside its layers, empty where there is none,
    ``function(name)`` whether an operator that Keras 2 recorded can be computed.
    """

    layer: Callable[[str], bool]
    accepts: Callable[[str, str], bool]
    operation: Callable[[str], str]
    custom: Callable[[str], bool]
    function: Callable[[str], bool]
    keras2: bool


def translated(config: Config, rules: Rules) -> Config:
    """A model's configuration as Keras 3 stores it in ``.keras`` files."""
    return _model(_without_slashes(config), rules)


def _without_slashes(config: Config) -> Config:
    """``config`` with other names for layers whose name holds a ``/``, which Keras 3 forbids.

    Weights are found by the order of the layers, so no name in the file must stay.
    """
    layers = [each for each in dicts(config) if "class_name" in each]
    taken = {name for each in layers for name in (each.get("name"), _inner_name(each)) if isinstance(name, str)}
    renamed: dict[str, str] = {}
    for name in sorted(each for each in taken if "/" in each):
        new = name.replace("/", "_")
        while new in taken:
            new += "_"
        taken.add(new)
        renamed[name] = new
    made: Config = _replaced(config, renamed)
    return made


def _inner_name(entry: Config) -> object:
    config = entry.get("config")
    return config.get("name") if isinstance(config, dict) else None


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_replaced(each, names) for each in value]
    if isinstance(value, dict):
        return {key: _replaced(each, names) for key, each in value.items()}
    return value


def _model(entry: Config, rules: Rules) -> Config:
    name = _RENAMED.get(str(entry.get("class_name")), str(entry.get("class_name")))
    config = entry.get("config")
    if isinstance(config, list):  # Sequential models of the first Keras 2 releases
        config = {"name": "sequential", "layers": config}
    if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
        raise SourceError(f"the configuration of {name} lists no layers")
    if name == "Sequential":
        return _named("keras", name, {"name": config.get("name"), "layers": _sequence(config["layers"], rules)})
    layers = config["layers"]
    names = frozenset(str(layer.get("name")) for layer in layers)
    made = [_in_graph(layer, names, rules) for layer in layers]
    ends = {key: _alone(config[key]) for key in ("input_layers", "output_layers") if key in config}
    if len(ends) < 2:
        raise SourceError(f"the configuration of {name} has no input_layers and output_layers")
    # keras.Model builds a functional model where its configuration lists layers.
    return _named("keras", "Model", {"name": config.get("name"), "layers": made, **ends})


def _alone(tensors: Any) -> Any:
    """One tensor of a list of one, as Keras 2 takes and gives it; Keras 3 hands the next layer a list."""
    return tensors[0] if isinstance(tensors, list) and len(tensors) == 1 else tensors


def _sequence(layers: list[Config], rules: Rules) -> list[Config]:
    """A layer list; an input shape given with the first layer becomes a layer of its own."""
    first = layers[0].get("config", {}) if layers else {}
    shape = first.get("batch_input_shape")
    made = [_layer(layer, rules) for layer in layers]
    if shape is None or layers[0].get("class_name") == "InputLayer":
        return made
    name = f"{first.get('name', 'layer')}_input"
    dtype = "float32" if layers[0].get("class_name") != "Embedding" else "int32"
    return [_named("keras.layers", "InputLayer", {"batch_shape": shape, "dtype": dtype, "name": name}), *made]


def _in_graph(entry: Config, names: frozenset[str], rules: Rules) -> Config:
    nodes = entry.get("inbound_nodes", [])
    if entry.get("class_name") in ("TFOpLambda", "SlicingOpLambda"):
        return _operation(entry, names, rules)
    made = _layer(entry, rules)
    calls = [node if isinstance(node, dict) else _node(str(entry["class_name"]), node, names) for node in nodes]
    return {**made, "name": entry.get("name"), "inbound_nodes": calls}


def _node(layer: str, node: list[Any], names: frozenset[str]) -> Config:
    """One call of a layer: Keras 2 lists the tensors, with the other arguments beside the first."""
    if node and isinstance(node[0], str):
        node = [node]
    tensors = [_tensor(each) for each in node]
    extra = node[0][3] if node and len(node[0]) > 3 else {}
    kwargs = {key: _resolved(value, names) for key, value in extra.items()}
    if layer in _RECURRENT and len(tensors) > 1:
        return {"args": [tensors[0]], "kwargs": {**kwargs, "initial_state": tensors[1:]}}
    return {"args": [tensors[0] if len(tensors) == 1 else tensors], "kwargs": kwargs}


def _tensor(reference: list[Any]) -> Config:
    history = [str(reference[0]), int(reference[1]), int(reference[2])]
    config = {"shape": [None], "dtype": "float32", "keras_history": history}
    return {"class_name": "__keras_tensor__", "config": config}


def _is_tensor(value: Any, names: frozenset[str]) -> bool:
    listed = isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str)
    return listed and value[0] in names and isinstance(value[1], int) and isinstance(value[2], int)


def _resolved(value: Any, names: frozenset[str]) -> Any:
    if _is_tensor(value, names):
        return _tensor(value)
    if isinstance(value, list):
        return [_resolved(each, names) for each in value]
    return value


def _operation(entry: Config, names: frozenset[str], rules: Rules) -> Config:
    """A recorded TensorFlow operator: its arguments move into the layer, tensors become its inputs."""
    function = str(entry.get("config", {}).get("function", ""))
    if not rules.function(function):
        raise Unsupported(f"{entry.get('name')} (TFOpLambda {function}): no counterpart in keras.ops is known")
    nodes = entry.get("inbound_nodes", [])
    if len(nodes) != 1:
        raise Unsupported(f"{entry.get('name')} ({entry.get('class_name')}): one operator called {len(nodes)} times")
    node = nodes[0]
    single = bool(node) and isinstance(node[0], str)
    calls = [node] if single else node
    tensors: list[Config] = []
    values = [_placed(call[2] if call[0] == "_CONSTANT_VALUE" else call[:3], names, tensors) for call in calls]
    kwargs = {key: _placed(value, names, tensors) for key, value in (calls[0][3] or {}).items()}
    config = {
        "name": entry.get("name"),
        "function": function,
        "values": values[0] if single else values,
        "options": kwargs,
    }
    made = _named("", OPERATION, config, OPERATION)
    return {**made, "name": entry.get("name"), "inbound_nodes": [{"args": [tensors], "kwargs": {}}]}


def _placed(value: Any, names: frozenset[str], tensors: list[Config]) -> Any:
    """``value`` with tensors replaced by their place in ``tensors``."""
    if _is_tensor(value, names):
        tensors.append(_tensor(value))
        return {"tensor": len(tensors) - 1}
    if isinstance(value, list):
        return [_placed(each, names, tensors) for each in value]
    if isinstance(value, dict):
        return {key: _placed(each, names, tensors) for key, each in value.items()}
    return value


def _layer(entry: Config, rules: Rules) -> Config:
    name = _RENAMED.get(str(entry.get("class_name")), str(entry.get("class_name")))
    config = entry.get("config")
    if name in _MODELS:
        return _model(entry, rules)
    if not isinstance(config, dict):
        raise SourceError(f"the configuration of a {name} layer is missing")
    if name == "Lambda" and rules.keras2:
        return _named("keras.layers", name, _stored_code(config))
    if rules.custom(name):
        return _named(str(entry.get("module") or ""), name, config, str(entry.get("registered_name") or name))
    if "trainable" not in config and name != "InputLayer" and (module := rules.operation(name)):
        return _named(module, name, config, name)
    if not rules.layer(name):
        raise Unsupported(
            f"{config.get('name')} ({name}): Keras has no such layer", ways_out=("--model pkg.mod:Class",)
        )
    options = {key: _option(name, key, value, rules) for key, value in config.items() if _kept(name, key, value, rules)}
    options |= {key: "zeros" for key in config if key.endswith("initializer") and rules.accepts(name, key)}
    if name == "GRU" and rules.keras2:
        options.setdefault("reset_after", False)  # Keras 2.0 and 2.1 wrote no such option and meant False
    if name == "InputLayer":
        options.pop("sparse", None)
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        options = {**options, "batch_shape": shape}
        options.pop("batch_input_shape", None)
    return _named("keras.layers", name, options)


def _stored_code(config: Config) -> Config:
    """A Lambda layer whose code is in the file, as Keras 3 stores it."""
    code = config.get("function")
    if config.get("function_type") != "lambda" or not isinstance(code, list) or len(code) != 3:
        raise Unsupported(f"{config.get('name')} (Lambda): its function is not stored in the file")
    if config.get("output_shape_type", "raw") != "raw":
        raise Unsupported(f"{config.get('name')} (Lambda): its output shape is a function")
    stored = dict(zip(("code", "defaults", "closure"), code, strict=True))
    kept: Config = {
        key: config[key] for key in ("name", "trainable", "dtype", "output_shape", "arguments") if key in config
    }
    return {**kept, "function": {"class_name": "__lambda__", "config": stored}}


def _kept(layer: str, key: str, value: Any, rules: Rules) -> bool:
    if _TRAINING_ONLY.fullmatch(key):
        return False
    if not rules.keras2 or rules.accepts(layer, key):
        return True
    harmless = _HARMLESS.get(key)
    if harmless is None or (harmless and value not in harmless):
        raise Unsupported(f"{layer} with {key}={value!r}: this Keras has no such option")
    return False


def _option(layer: str, key: str, value: Any, rules: Rules) -> Any:
    if isinstance(value, dict) and value.get("class_name") == "Policy":
        return value.get("config", {}).get("name")
    if (
        isinstance(value, dict)
        and "class_name" in value
        and key in ("layer", "cell", "backward_layer", "forward_layer")
    ):
        return _layer(value, rules)
    if key == "cells" and isinstance(value, list):
        return [_layer(each, rules) for each in value]
    if key.endswith("activation") and rules.keras2 and isinstance(value, str):
        return {"hard_sigmoid": HARD_SIGMOID, "softmax_v2": "softmax"}.get(value, value)
    if key == "axis" and layer == "BatchNormalization" and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _named(module: str, name: str, config: Config, registered: str | None = None) -> Config:
    return {"module": module or None, "class_name": name, "config": config, "registered_name": registered}
