"""The README of what ships: how an app loads the file, and how a smaller ONNX Runtime is built for it."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime as ort

from convertkit.targets.ort_mobile.required import CONFIG


def readme(precision: str, verdicts: Mapping[str, str]) -> str:
    """Markdown; ``verdicts`` are those of the usability checker."""
    told = "\n".join(f"- {name}: {verdict}" for name, verdict in verdicts.items())
    return f"""# Model for ONNX Runtime on phones ({precision})

`model.ort` is loaded by the full and by minimal builds of ONNX Runtime {ort.__version__} and newer. The optimisations
for the CPU are in the file; the session needs no options.

## A smaller ONNX Runtime
`{CONFIG}` names the operators and types that the model needs. In a checkout of ONNX Runtime:

    ./build.sh --config MinSizeRel --minimal_build --disable_ml_ops --disable_rtti --skip_tests \\
        --include_ops_by_config {CONFIG} --enable_reduced_operator_type_support

with the flags of the device, such as `--android --android_abi arm64-v8a`. This was not built here.

## Would NNAPI or Core ML help?
The verdict of ONNX Runtime's usability checker, by its lists of operators, not run:

{told}

Both take nodes of a file in which the CPU's optimisations are not yet applied: try `--target onnxruntime` for them.
"""
