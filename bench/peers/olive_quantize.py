"""Olive's static int8: ``olive_quantize.py MODEL.onnx OUT.onnx CALIB.npz``, in an environment of its own.

The pass is OnnxStaticQuantization; all but the data is its default.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from olive.data.config import DataComponentConfig, DataConfig
from olive.data.registry import Registry
from olive.workflows import run


@Registry.register_dataset()
def samples(data_name: str, **_: object) -> torch.utils.data.Dataset:
    """The arrays of an .npz, a sample at a time, each with a label that nobody reads."""
    arrays = dict(np.load(data_name))
    count = len(next(iter(arrays.values())))
    return [({name: array[place] for name, array in arrays.items()}, 0) for place in range(count)]


def main() -> int:
    model, out, calibration = sys.argv[1:4]
    data = DataConfig(
        name="calibration",
        type="DataContainer",
        load_dataset_config=DataComponentConfig(type="samples", params={"data_name": calibration}),
        pre_process_data_config=DataComponentConfig(type="skip_pre_process"),
        post_process_data_config=DataComponentConfig(type="skip_post_process"),
        dataloader_config=DataComponentConfig(type="default_dataloader", params={"batch_size": 1}),
    )
    with tempfile.TemporaryDirectory() as place:
        run(
            {
                "input_model": {"type": "ONNXModel", "model_path": model},
                "data_configs": [data.model_dump()],
                "passes": {"int8": {"type": "OnnxStaticQuantization", "data_config": "calibration"}},
                "output_dir": place,
                "cache_dir": f"{place}/cache",
                "log_severity_level": 3,
            }
        )
        (found,) = Path(place).glob("*.onnx")
        shutil.copyfile(found, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
