"""What is relied on of torch beyond its documentation: where a new version fails here, ``compat/`` has to change."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.compat import exporters, files, modules, overloads, scripts, shapes, trees

pytestmark = pytest.mark.filterwarnings("ignore")


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.register_buffer("nothing", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


@pytest.fixture(scope="module")
def scripted() -> Any:
    return torch.jit.script(Outer())


@pytest.fixture(scope="module")
def program() -> Any:
    return torch.export.export(Outer(), (torch.rand(2, 3),))


def _kinds(graph: Any) -> list[str]:
    return [node.kind() for node in graph.nodes()]


def test_a_graph_is_inlined_as_a_copy(scripted: Any) -> None:
    graph = scripted.forward.graph
    assert "aten::relu" in _kinds(scripts.inlined(graph))
    assert "aten::relu" not in _kinds(graph), "the module's own graph stays"


def test_every_method_of_a_script_has_its_graph(scripted: Any) -> None:
    assert [graph.findNode("aten::add") is not None for graph in scripts.method_graphs(scripted)] == [True]


def test_a_node_tells_the_overload_that_it_calls(scripted: Any) -> None:
    schemas = {node.kind(): scripts.schema_of(node) for node in scripts.inlined(scripted.forward.graph).nodes()}
    assert schemas["aten::add"].overload_name == "Scalar"
    assert schemas["prim::GetAttr"] is None


def test_objects_of_scripts_are_known(scripted: Any) -> None:
    assert scripts.is_object(scripted._c)
    assert not scripts.is_object(torch.ones(1))


def test_overloads_tell_what_they_do(program: Any) -> None:
    aten = torch.ops.aten
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert [overloads.name_of(each) for each in called if overloads.is_overload(each)] == ["aten::relu", "aten::add"]
    (dropped,) = [each for each in overloads.arguments_of(aten.dropout.default) if each.name == "train"]
    assert not dropped.has_default_value()
    assert overloads.changes_an_argument(aten.relu_.default)
    assert not overloads.changes_an_argument(aten.relu.default)
    assert overloads.returns_a_view(aten.view.default)
    assert not overloads.returns_a_view(aten.relu.default)
    assert not overloads.is_overload(max)


def test_every_operator_that_runs_is_seen() -> None:
    seen = []

    class Watch(overloads.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(overloads.name_of(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.ones(2).relu()
    assert "aten::relu" in seen


def test_containers_are_taken_apart_and_put_together(program: Any) -> None:
    value = ({"a": torch.ones(1), "b": [2]}, 3)
    assert trees.leaves(value)[1:] == [2, 3]
    assert trees.mapped(str, (1, [2])) == ("1", ["2"])
    changed = trees.with_tensors(torch.zeros_like, value)
    assert (changed[0]["a"].item(), changed[0]["b"], changed[1]) == (0, [2], 3)
    assert list(trees.leaves_of_call((1, [2]), {"k": 3})) == [1, 2, 3]
    assert trees.unflattened([7], program.call_spec.in_spec) == ((7,), {})


def test_a_class_of_containers_becomes_known_by_its_name() -> None:
    kind = type("Pair", (dict,), {})
    trees.register(kind, lambda held: (list(held.values()), list(held)), lambda values, _: kind(a=values), "test.Pair")
    assert trees.known_classes()["test.Pair"] is kind


def test_operators_run_on_shapes_alone() -> None:
    with shapes.shapes_only():
        assert tuple((torch.empty(2, 3) @ torch.empty(3, 5)).shape) == (2, 5)
        with pytest.raises(RuntimeError):
            torch.empty(2, 3) @ torch.empty(4, 5)


def test_pickles_of_tensors_name_what_rebuilds_them() -> None:
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2)}, stream, _use_new_zipfile_serialization=False)
    assert any(name.encode() in stream.getvalue() for _, name in files.REBUILT)
    assert all(callable(each) for each in files.REBUILT.values())


def test_a_pickle_that_runs_code_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    torch.save(Outer(), tmp_path / "object.pt")
    files.forbid_pickles()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "object.pt", weights_only=False)


def test_programs_say_the_version_that_this_torch_reads(tmp_path: Path, program: Any) -> None:
    import json
    import zipfile

    torch.export.save(program, tmp_path / "outer.pt2")
    with zipfile.ZipFile(tmp_path / "outer.pt2") as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("models/model.json")]
        assert json.loads(archive.read(name))["schema_version"]["major"] == files.program_version()


def test_a_module_s_attributes_have_buffers_that_are_none() -> None:
    held = modules.attributes(Outer())
    assert held["nothing"] is None
    assert "inner" not in held
    assert {"training", "_buffers"} <= modules.OWN


def test_parts_may_be_replaced_and_compiling_undone() -> None:
    outer = Outer()
    modules.parts(outer)["inner"] = nn.Identity()
    assert outer(-torch.ones(1)).item() == 0
    outer.compile()
    assert outer.__dict__["_compiled_call_impl"] is not None
    modules.forget_compiled(outer)
    assert outer(torch.ones(1)).item() == 2


def test_translators_are_where_they_are_imported_from(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    for name in exporters._TRANSLATORS:
        assert importlib.import_module(name), "torch.onnx would import it in every fork anew"


def test_translators_tell_their_domain_without_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the sources of all costs 0.8 seconds of every export."""
    import inspect

    from onnxscript.function_libs.torch_lib import ops, registration

    assert ops
    exporters.import_translators()
    told = [each.function_ir for _, named in registration.default_registry.items() for each in named.overloads]
    assert len(told) > 400
    assert {each.domain for each in told} == {
        each._read(each._translator).domain for each in told if hasattr(each, "_read")
    }
    assert told[0].name, "what else is asked for is read"
    monkeypatch.setattr(inspect, "getsource", lambda _: pytest.fail("a source was read"))
    assert exporters.decompositions(set())


def test_transformer_layers_do_not_look_into_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, exporting one with a mask fails on the data-dependent comparison."""
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 8, batch_first=True), 1).eval()
    given = (torch.rand(1, 3, 4), torch.zeros(3, 3))
    before = torch.nn.modules.transformer._detect_is_causal_mask
    monkeypatch.setattr(torch.nn.modules.transformer, "_detect_is_causal_mask", before)
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        with pytest.raises(Exception, match=r"."):
            torch.export.export(layer, given, strict=False)
        exporters.let_masks_be()
        assert torch.export.export(layer, given, strict=False)


def test_quantizers_operators_are_registered_by_their_module() -> None:
    import importlib

    importlib.import_module(exporters.DECOMPOSED)
    assert torch.ops.quantized_decomposed.quantize_per_tensor.default


class Asking(nn.Module):
    """Calls each operator whose symbolic function of the exporter is wrapped or called."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if x.dim() in (3, 4):
            x = nn.functional.scaled_dot_product_attention(x, x, x, mask)
        return torch.clamp(x, 0.25)


def test_the_older_exporter_is_told_and_asked(tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    @exporters.taking("v", "f", "v")
    def clamp(g: Any, x: Any, low: float, high: Any) -> Any:
        told.update(low=low, high=exporters.is_none(high), dtype=exporters.dtype(x))
        return g.op("Relu", x)

    def contains(g: Any, values: Any, element: Any) -> Any:
        told["dims"] = exporters.is_constant(values) and exporters.constant(values).tolist()
        return g.op("Constant", value_t=torch.tensor(True))

    def attention(g: Any, *arguments: Any) -> Any:
        told["attention"] = len(arguments)
        return exporters.attention(g, *arguments)

    rows = {"clamp": (clamp, 11), "__contains_": (contains, 9), "scaled_dot_product_attention": (attention, 14)}
    for name, (symbolic, opset) in rows.items():
        exporters.register(f"aten::{name}", symbolic, opset)
    try:
        given = (torch.rand(1, 1, 3, 4), torch.zeros(3, 3))
        script = torch.jit.script(Asking())
        torch.onnx.export(script, given, tmp_path / "a.onnx", opset_version=18, dynamo=False, input_names=["x", "m"])
    finally:
        for name, (_, opset) in rows.items():
            torch.onnx.unregister_custom_op_symbolic(f"aten::{name}", opset)
    assert callable(exporters.symbolic_opset9.__contains_), "asked for lists that are computed"
    assert {key: told[key] for key in ("low", "high", "dtype", "attention", "dims")} == {
        "low": 0.25,
        "high": True,
        "dtype": torch.float32,
        "attention": 8,
        "dims": [3, 4],
    }
    assert {"Softmax", "Relu"} <= {node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node}
