"""A front end for sounds written into canonical ONNX, as ordinary operators in front of an input.

Spectra are a convolution with cosines and sines, which every target has and computes in float32 in one way.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.processing.audio import Sound, bands, cosines, waves
from convertkit.processing.audio_words import Spectrum
from convertkit.processing.writer import Writer
from convertkit.profile import STAYS_FLOAT

_FULL = 1 / 32768
_WHY = "the front end computes as training did"


def write_sound(graph: ir.Graph, sound: Sound) -> None:
    """Let the input take PCM: (N, samples) of int16; it keeps its name."""
    (at, old) = next((at, each) for at, each in enumerate(graph.inputs) if each.name == sound.name)
    batch = () if sound.flat or old.shape is None else (old.shape[0],)
    shape, kind = ir.Shape([*batch, sound.samples]), ir.TensorType(ir.DataType[sound.dtype.upper()])
    new = ir.Value(name=sound.name, shape=shape, type=kind)
    write = Writer(graph, f"{sound.name}/preprocess")
    value = write.op("Cast", new, to=int(ir.DataType.FLOAT))
    if sound.how.peak:
        value = write.op("Div", value, write.greatest(value, keepdims=1))
    elif not sound.how.raw:
        value = write.op("Mul", value, write.real(_FULL))
    if sound.how.spectrum is not None:
        value = _numbers(write, value, sound.how.spectrum, sound)
        value = write.op("Transpose", value, perm=[0, 2, 1]) if sound.how.transposed else value
    if sound.how.mean:
        value = write.op("Sub", value, write.real(sound.how.mean))
    if sound.how.std != 1:
        value = write.op("Mul", value, write.real(1 / sound.how.std))
    ahead = () if sound.flat else (0,)
    value = write.op("Reshape", value, write.ints(*ahead, *sound.shape))
    for node in write.nodes:
        node.metadata_props[STAYS_FLOAT] = _WHY
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.inputs[at] = new
    if len(graph):
        graph.insert_before(graph[0], write.nodes)
    else:
        graph.extend(write.nodes)


def _numbers(write: Writer, value: ir.Value, spectrum: Spectrum, sound: Sound) -> ir.Value:
    """(N, frames, numbers) of (N, samples)."""
    count = spectrum.fft // 2 + 1
    filters = write.constant(np.concatenate(waves(spectrum))[:, None])
    lanes = write.op("Reshape", value, write.ints(1 if sound.flat else 0, 1, sound.samples))
    both = write.op("Conv", lanes, filters, strides=[spectrum.hop])
    squares = write.op("Mul", both, both)
    found = write.op("Add", write.cut(squares, 0, count, 1), write.cut(squares, count, 2 * count, 1))
    found = found if spectrum.power else write.op("Sqrt", found)
    found = write.op("Transpose", found, perm=[0, 2, 1])
    if spectrum.mel:
        found = write.op("MatMul", found, write.constant(bands(spectrum, sound.how.rate)))
    if spectrum.log is not None:
        found = write.op("Log", write.op("Add", found, write.real(spectrum.log)))
    return write.op("MatMul", found, write.constant(cosines(spectrum))) if spectrum.mfcc else found
