"""Which element types LiteRT's kernels compute rightly: runs one-operator models and writes kernels.json.

    python bench/tflite_kernel_types.py

Each model runs in a process of its own fork: some kernels abort for types they do not take.  A type is
listed only where the result equals NumPy's, integers at the ends of their range included.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.writer import Signature, write_model

TYPES = (
    *("float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    "bool",
)
OUT = Path(__file__).resolve().parents[1] / "targets" / "tflite" / "kernels.json"

Arrays = list[np.ndarray]
Build = Callable[[Builder, list[Tensor]], Tensor]
Expect = Callable[[Arrays], np.ndarray]


def _wide(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return rng.normal(size=shape).astype(dtype)
    ends = np.iinfo(dtype)
    values = rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
    values.reshape(-1)[:2] = ends.min, ends.max
    return values


def _small(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    values = rng.integers(1, 5, shape)
    return values.astype(dtype)


def _signed(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype in ("bool",) or dtype.startswith("u"):
        return _small(rng, dtype, shape)
    return (_small(rng, dtype, shape) * rng.choice([-1, 1], shape)).astype(dtype)


S = (3, 4)
V = (1, 4)
CASES: dict[str, tuple[Build, Expect, tuple[tuple[int, ...], ...], Callable]] = {
    "ADD": (lambda b, t: b.add(*t), lambda a: a[0] + a[1], (S, V), _wide),
    "SUB": (lambda b, t: b.sub(*t), lambda a: a[0] - a[1], (S, V), _wide),
    "MUL": (lambda b, t: b.mul(*t), lambda a: a[0] * a[1], (S, V), _wide),
    "DIV": (
        lambda b, t: b.div(*t),
        lambda a: a[0] / a[1] if a[0].dtype.kind == "f" else np.trunc(a[0] / a[1].astype(float)).astype(a[0].dtype),
        (S, V),
        _signed,
    ),
    "FLOOR_DIV": (lambda b, t: b.floor_div(*t), lambda a: a[0] // a[1], (S, V), _signed),
    "FLOOR_MOD": (lambda b, t: b.floor_mod(*t), lambda a: a[0] % a[1], (S, V), _signed),
    "POW": (lambda b, t: b.pow(*t), lambda a: a[0] ** a[1], (S, V), _small),
    "MAXIMUM": (lambda b, t: b.maximum(*t), lambda a: np.maximum(*a), (S, V), _wide),
    "MINIMUM": (lambda b, t: b.minimum(*t), lambda a: np.minimum(*a), (S, V), _wide),
    "BITWISE_XOR": (lambda b, t: b.bitwise_xor(*t), lambda a: a[0] ^ a[1], (S, V), _wide),
    "RIGHT_SHIFT": (lambda b, t: b.right_shift(*t), lambda a: a[0] >> a[1], (S, V), _small),
    "EQUAL": (lambda b, t: b.equal(*t), lambda a: a[0] == a[1], (S, V), _small),
    "NOT_EQUAL": (lambda b, t: b.not_equal(*t), lambda a: a[0] != a[1], (S, V), _small),
    "LESS": (lambda b, t: b.less(*t), lambda a: a[0] < a[1], (S, V), _wide),
    "LESS_EQUAL": (lambda b, t: b.less_equal(*t), lambda a: a[0] <= a[1], (S, V), _wide),
    "GREATER": (lambda b, t: b.greater(*t), lambda a: a[0] > a[1], (S, V), _wide),
    "GREATER_EQUAL": (lambda b, t: b.greater_equal(*t), lambda a: a[0] >= a[1], (S, V), _wide),
    "ABS": (lambda b, t: b.abs(*t), lambda a: np.abs(a[0]), (S,), _signed),
    "NEG": (lambda b, t: b.neg(*t), lambda a: -a[0], (S,), _signed),
    "SIGN": (lambda b, t: b.sign(*t), lambda a: np.sign(a[0]), (S,), _signed),
    "SQUARE": (lambda b, t: b.square(*t), lambda a: a[0] * a[0], (S,), _signed),
    "RELU": (lambda b, t: b.relu(*t), lambda a: np.maximum(a[0], a[0].dtype.type(0)), (S,), _signed),
    "SELECT_V2": (
        lambda b, t: b.select(b.constant(np.tri(3, 4) > 0), *t),
        lambda a: np.where(np.tri(3, 4) > 0, *a),
        (S, V),
        _wide,
    ),
    "TRANSPOSE": (lambda b, t: b.transpose(t[0], (1, 0)), lambda a: a[0].T, (S,), _wide),
    "RESHAPE": (lambda b, t: b.reshape(t[0], (4, 3)), lambda a: a[0].reshape(4, 3), (S,), _wide),
    "SLICE": (lambda b, t: b.slice(t[0], (1, 1), (2, 2)), lambda a: a[0][1:3, 1:3], (S,), _wide),
    "STRIDED_SLICE": (
        lambda b, t: b.strided_slice(t[0], (2, 0), (0, 4), (-1, 2), (2, 2)),
        lambda a: a[0][2:0:-1, 0:4:2],
        (S,),
        _wide,
    ),
    "CONCATENATION": (lambda b, t: b.concatenation(t, 0), np.concatenate, (S, V), _wide),
    "SPLIT": (
        lambda b, t: b.split(t[0], 1, (2, 2))[1],
        lambda a: a[0][:, 2:],
        (S,),
        _wide,
    ),
    "SPLIT_V": (lambda b, t: b.split(t[0], 1, (1, 3))[1], lambda a: a[0][:, 1:], (S,), _wide),
    "PACK": (lambda b, t: b.pack(t, 0), np.stack, (S, S), _wide),
    "UNPACK": (lambda b, t: b.unpack(t[0], 0)[1], lambda a: a[0][1], (S,), _wide),
    "TILE": (lambda b, t: b.tile(t[0], (2, 3)), lambda a: np.tile(a[0], (2, 3)), (S,), _wide),
    "PAD": (lambda b, t: b.pad(t[0], ((1, 0), (0, 2))), lambda a: np.pad(a[0], ((1, 0), (0, 2))), (S,), _wide),
    "PADV2": (
        lambda b, t: b.pad(t[0], ((1, 0), (0, 2)), b.scalar(1, t[0])),
        lambda a: np.pad(a[0], ((1, 0), (0, 2)), constant_values=1),
        (S,),
        _wide,
    ),
    "MIRROR_PAD": (
        lambda b, t: b.mirror_pad(t[0], ((1, 0), (0, 2)), symmetric=False),
        lambda a: np.pad(a[0], ((1, 0), (0, 2)), mode="reflect"),
        (S,),
        _wide,
    ),
    "BROADCAST_TO": (
        lambda b, t: b.broadcast_to(t[0], (3, 4)),
        lambda a: np.broadcast_to(a[0], (3, 4)),
        (V,),
        _wide,
    ),
    "GATHER": (lambda b, t: b.gather(t[0], b.ints((2, 0)), 0), lambda a: a[0][[2, 0]], (S,), _wide),
    "GATHER_ND": (
        lambda b, t: b.gather_nd(t[0], b.constant(np.array([[2, 1], [0, 3]], np.int32))),
        lambda a: a[0][[2, 0], [1, 3]],
        (S,),
        _wide,
    ),
    "SCATTER_ND": (
        lambda b, t: b.scatter_nd(b.constant(np.array([[3], [0], [1]], np.int32)), t[0], b.ints((5, 4)), (5, 4)),
        lambda a: np.stack([a[0][1], a[0][2], a[0][0] * 0, a[0][0], a[0][0] * 0]),
        (S,),
        _wide,
    ),
    "REVERSE_V2": (lambda b, t: b.reverse(t[0], (1,)), lambda a: a[0][:, ::-1], (S,), _wide),
    "REVERSE_SEQUENCE": (
        lambda b, t: b.reverse_sequence(t[0], b.ints((1, 2, 4)), seq_dim=1, batch_dim=0),
        lambda a: np.stack([a[0][0], a[0][1][[1, 0, 2, 3]], a[0][2][::-1]]),
        (S,),
        _wide,
    ),
    "ONE_HOT": (
        lambda b, t: b.one_hot(b.ints((2, 0)), b.constant(np.array(3, np.int32)), *[b.reshape(x, ()) for x in t], -1),
        lambda a: np.where(np.array([[0, 0, 1], [1, 0, 0]]) > 0, a[0], a[1]).astype(a[0].dtype),
        ((1,), (1,)),
        _small,
    ),
    "WHERE": (lambda b, t: b.where(t[0]), lambda a: np.argwhere(a[0]), (S,), _small),
    "TOPK_V2": (
        lambda b, t: b.topk(t[0], b.constant(np.array(2, np.int32)))[0],
        lambda a: -np.sort(-a[0].astype(np.float64 if a[0].dtype.kind == "f" else object))[:, :2].astype(a[0].dtype),
        (S,),
        _small,
    ),
    "CUMSUM": (
        lambda b, t: b.cumsum(t[0], 1, exclusive=False, reverse=False),
        lambda a: np.cumsum(a[0], 1, dtype=a[0].dtype),
        (S,),
        _wide,
    ),
    "SUM": (lambda b, t: b.sum(t[0], (1,), keep_dims=False), lambda a: a[0].sum(1, dtype=a[0].dtype), (S,), _signed),
    "MEAN": (
        lambda b, t: b.mean(t[0], (1,), keep_dims=False),
        lambda a: a[0].mean(1).astype(a[0].dtype),
        (S,),
        _small,
    ),
    "REDUCE_MAX": (lambda b, t: b.reduce_max(t[0], (1,), keep_dims=False), lambda a: a[0].max(1), (S,), _wide),
    "REDUCE_MIN": (lambda b, t: b.reduce_min(t[0], (1,), keep_dims=False), lambda a: a[0].min(1), (S,), _wide),
    "REDUCE_PROD": (
        lambda b, t: b.reduce_prod(t[0], (1,), keep_dims=False),
        lambda a: a[0].prod(1, dtype=a[0].dtype),
        (S,),
        _small,
    ),
    "ARG_MAX": (lambda b, t: b.arg_max(t[0], 1), lambda a: a[0].argmax(1), (S,), _wide),
    "ARG_MIN": (lambda b, t: b.arg_min(t[0], 1), lambda a: a[0].argmin(1), (S,), _wide),
    "BATCH_MATMUL": (
        lambda b, t: b.batch_matmul(t[0], b.transpose(t[1], (1, 0))),
        lambda a: a[0] @ a[1].T,
        (S, S),
        _small,
    ),
    "FULLY_CONNECTED": (lambda b, t: b.fully_connected(*t, None), lambda a: a[0] @ a[1].T, (S, S), _small),
    "ZEROS_LIKE": (lambda b, t: b.zeros_like(t[0]), lambda a: a[0] * a[0].dtype.type(0), (S,), _small),
    "DYNAMIC_UPDATE_SLICE": (
        lambda b, t: b.dynamic_update_slice(t[0], t[1], b.ints((1, 0))),
        lambda a: np.stack([a[0][0], a[1][0], a[0][2]]),
        (S, V),
        _wide,
    ),
}
CASES |= {
    "DEPTH_TO_SPACE": (
        lambda b, t: b.depth_to_space(b.reshape(t[0], (1, 1, 3, 4)), block_size=2),
        lambda a: a[0].reshape(1, 1, 3, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 6, 1),
        (S,),
        _wide,
    ),
    "SPACE_TO_DEPTH": (
        lambda b, t: b.space_to_depth(b.reshape(t[0], (1, 2, 6, 1)), block_size=2),
        lambda a: a[0].reshape(1, 1, 2, 3, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(1, 1, 3, 4),
        (S,),
        _wide,
    ),
    "RANGE": (
        lambda b, t: b.range(b.scalar(1, t[0]), b.reshape(t[0], ()), b.scalar(2, t[0]), -1),
        lambda a: np.arange(1, a[0].item(), 2).astype(a[0].dtype),
        ((1,),),
        lambda rng, dtype, shape: np.full(shape, 9, dtype),
    ),
}
for _source in TYPES:
    CASES[f"CAST from {_source}"] = (
        lambda b, t, source=_source: b.cast(b.cast(t[0], source), t[0].dtype),
        lambda a, source=_source: a[0].astype(source).astype(a[0].dtype),
        (S,),
        _small,
    )


def outcome(code: str, dtype: str, folder: Path) -> bool:
    """Whether the kernel computes what NumPy does, judged in a fork."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            os._exit(0 if _runs(code, dtype, folder) else 1)
        except Exception:  # noqa: BLE001 - whatever fails is a type that is not taken
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def _runs(code: str, dtype: str, folder: Path) -> bool:
    from ai_edge_litert.interpreter import Interpreter

    build, expect, shapes, draw = CASES[code]
    rng = np.random.default_rng(7)
    arrays = [draw(rng, dtype, shape) for shape in shapes]
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    inputs = [Tensor(f"x{i}", array.shape, dtype) for i, array in enumerate(arrays)]  # type: ignore[arg-type]
    subgraph.inputs = list(inputs)
    result = build(Builder(program, subgraph), inputs)
    subgraph.outputs = [result]
    path = folder / "one.tflite"
    signature = Signature({tensor.name: tensor for tensor in inputs}, {"y": result})
    write_model(program, signature, path, metadata={}, description="")
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    found = interpreter.get_signature_runner()(**{tensor.name: array for tensor, array in zip(inputs, arrays)})["y"]
    with np.errstate(all="ignore"):
        wanted = expect(arrays)
    close = np.allclose(found.astype(float), wanted.astype(float), rtol=1e-3 if dtype == "float16" else 1e-6)
    return found.shape == wanted.shape and (close if dtype.startswith("float") else bool((found == wanted).all()))


def main() -> None:
    """Probe every pair and write the table."""
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for code in CASES:
            table[code] = [dtype for dtype in TYPES if outcome(code, dtype, Path(folder))]
            print(f"{code:22} {' '.join(table[code])}", file=sys.stderr)
    lines = ",\n".join(f"  {json.dumps(code)}: {json.dumps(kinds)}" for code, kinds in sorted(table.items()))
    OUT.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
