"""What a packaged ``.ort`` file needs of a smaller ONNX Runtime that an app brings itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

from convertkit.targets.mobile.formats import format_of
from convertkit.targets.ort_mobile.required import CONFIG, write_required


def required_by(model: bytes, name: str) -> dict[str, bytes]:
    """The file of operators and types for a reduced build, by its name; none for what is not a ``.ort`` file.

    ``name`` is what the model is called in the package.
    """
    if format_of(model) != "ort":
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(model)
        write_required(path, Path(folder, CONFIG))
        return {CONFIG: Path(folder, CONFIG).read_bytes()}


def section(suffix: str, library: str) -> str:
    """What a README says of it; empty for a model whose name ends otherwise than in ``.ort``."""
    if suffix != ".ort":
        return ""
    return f"""
## A smaller ONNX Runtime
The model is a `.ort` file, which full and minimal builds of ONNX Runtime load. A minimal build in the place of
`{library}` is made in a checkout of ONNX Runtime, with the flags of the device:

    ./build.sh --config MinSizeRel --minimal_build --disable_ml_ops --disable_rtti --skip_tests \\
        --include_ops_by_config {CONFIG} --enable_reduced_operator_type_support

`{CONFIG}` beside this file names the operators and types that the model needs. Such a build was not made here.
"""
