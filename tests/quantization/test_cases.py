"""Trained models that no one here wrote, on their own data."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model

TEST = slice(1000, 3000)


def mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    images = np.frombuffer(gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    return images.reshape(-1, 1, 28, 28).astype(np.float32), labels


@pytest.mark.case
@pytest.mark.parametrize("model", ["cnn_mnist_pytorch.onnx", "mnist.onnx"])
@pytest.mark.parametrize(("precision", "most"), [("int8", 0.2), ("w4", 1.0)])
def test_mnist(cases: Path, tmp_path: Path, quantized, model: str, precision: str, most: float) -> None:
    images, labels = mnist(cases / "mnist")
    source = save_model(canonicalize(load_model(cases / "mnist" / model)), tmp_path / "float.onnx", "test")
    before, after = quantized(source, images[:200], precision).outputs(images[TEST])
    drop = 100 * ((before.argmax(-1) == labels[TEST]).mean() - (after.argmax(-1) == labels[TEST]).mean())
    assert drop <= most
