"""Files of several operators whose variables live from call to call, and what LiteRT makes of a sequence of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from handmade import T, _add

Op = tuple[str, Sequence[str], Sequence[str]]
"""An operator, VAR_HANDLE with the variable behind a colon, and the tensors that it takes and gives."""

_OPTIONS = {"ADD": "AddOptions", "MUL": "MulOptions"}


def write_graph(
    path: Path,
    tensors: Mapping[str, T],
    operators: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    start: Mapping[str, T],
) -> Path:
    """A file whose main graph is ``operators``; CALL_ONCE sets each variable to its constant of ``start``."""
    model = schema.ModelT()
    model.version, model.buffers, model.operatorCodes, model.subgraphs = 3, [schema.BufferT()], [], []
    once = [step for name in start for step in ((f"VAR_HANDLE:{name}", (), (f"h {name}",)),
                                                ("ASSIGN_VARIABLE", (f"h {name}", f"c {name}"), ()))]  # fmt: skip
    constants = {f"c {name}": value for name, value in start.items()}
    handles = {f"h {name}": T((), "resource") for name in start}
    main = [("CALL_ONCE", (), ()), *operators] if start else list(operators)
    model.subgraphs.append(_graph(model, tensors, main, inputs, outputs))
    if start:
        model.subgraphs.append(_graph(model, {**handles, **constants}, once, (), ()))
    made = flatbuffers.Builder(1024)
    made.Finish(model.Pack(made), b"TFL3")
    path.write_bytes(bytes(made.Output()))
    return path


def _graph(
    model: object, tensors: Mapping[str, T], operators: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]
) -> object:
    graph = schema.SubGraphT()
    graph.tensors, graph.name, graph.operators = [], b"main", []
    places = {name: _add(model, graph, each, name) for name, each in tensors.items()}
    graph.inputs, graph.outputs = [places[name] for name in inputs], [places[name] for name in outputs]
    for kind, taken, given in operators:
        builtin, _, variable = kind.partition(":")
        op, code = schema.OperatorT(), schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, builtin)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        op.opcodeIndex = len(model.operatorCodes)
        model.operatorCodes.append(code)
        op.inputs, op.outputs = [places[name] for name in taken], [places[name] for name in given]
        _set_options(op, builtin, variable)
        graph.operators.append(op)
    return graph


def _set_options(op: object, builtin: str, variable: str) -> None:
    name = {"CALL_ONCE": "CallOnceOptions", "VAR_HANDLE": "VarHandleOptions", **_OPTIONS}.get(builtin)
    if name is None:
        return
    op.builtinOptionsType, op.builtinOptions = getattr(schema.BuiltinOptions, name), getattr(schema, f"{name}T")()
    if builtin == "CALL_ONCE":
        op.builtinOptions.initSubgraphIndex = 1
    if builtin == "VAR_HANDLE":
        op.builtinOptions.sharedName, op.builtinOptions.container = variable.encode(), b""


def calls(path: Path, feeds: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """What LiteRT gives for one call after the other, of a file with one input."""
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    given = []
    for value in feeds:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
        interpreter.invoke()
        given.append([interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()])
    return given
