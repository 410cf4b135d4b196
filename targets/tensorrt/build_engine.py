"""Build a TensorRT engine from the model beside this file, on the machine with the GPU that will run it.

Needs Python 3.9 and TensorRT with its Python package, nothing else.  What to build lies in constraints.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LEVELS = {
    "none": "NONE",
    "ampere+": "AMPERE_PLUS",
    "same-compute-capability": "SAME_COMPUTE_CAPABILITY",
}
Sizes = dict[str, tuple[int, int, int]]


def main(words: list[str] | None = None) -> int:
    """Build and write the engine; 0 where it was built, 1 where TensorRT refused, 2 where something does not fit."""
    facts = json.loads((HERE / "constraints.json").read_text(encoding="utf-8"))
    asked = arguments(words)
    try:
        sizes = all_sizes(facts, asked.size)
        check_files(facts)
        import tensorrt as trt

        check_version(facts, trt.__version__)
    except (ImportError, ValueError) as error:
        print(f"build_engine.py: {error}", file=sys.stderr)
        return 2
    try:
        engine = build(trt, facts, asked, sizes)
    except RuntimeError as error:
        print(f"build_engine.py: {error}", file=sys.stderr)
        return 1
    replace(asked.engine, engine)
    digest = hashlib.sha256(engine).hexdigest()
    print(f"{asked.engine}: {len(engine)} bytes, sha256 {digest}, TensorRT {trt.__version__}")
    return 0


def arguments(words: list[str] | None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Build a TensorRT engine from the model of this package.")
    add = parser.add_argument
    add("--engine", type=Path, default=HERE / "model.engine", help="file to write [model.engine]")
    add("--size", action="append", default=[], metavar="NAME=MIN,OPT,MAX", help="sizes of a dynamic dimension")
    add("--timing-cache", type=Path, help="file that keeps what kernels took: the next build measures less")
    add("--version-compatible", action="store_true", help="let later releases of TensorRT run the engine, too")
    add("--hardware-compatible", choices=LEVELS, default="none", help="let other GPUs run the engine, too [none]")
    add("--no-tf32", action="store_true", help="keep all bits of float32 in products")
    add("--workspace-mib", type=int, help="most memory that a kernel may use beside its tensors")
    add("--plugin", action="append", default=[], metavar="FILE", help="library of plugins that the model needs")
    add("--verbose", action="store_true", help="print all that TensorRT says")
    return parser.parse_args(words)


def all_sizes(facts: dict[str, Any], given: list[str]) -> Sizes:
    """Smallest, usual and largest size of each dynamic dimension: those of the command line, else of the package."""
    sizes: Sizes = {name: tuple(each) for name, each in facts["dimensions"].items() if each}
    for text in given:
        match = re.fullmatch(r"(.+)=(\d+),(\d+),(\d+)", text)
        if match is None or match[1] not in facts["dimensions"]:
            known = ", ".join(facts["dimensions"]) or "none"
            raise ValueError(f"--size {text}: expected NAME=MIN,OPT,MAX; dynamic dimensions: {known}")
        least, usual, most = (int(match[place]) for place in (2, 3, 4))
        if not 1 <= least <= usual <= most:
            raise ValueError(f"--size {text}: expected 1 <= MIN <= OPT <= MAX")
        sizes[match[1]] = (least, usual, most)
    for name in facts["dimensions"]:
        if name not in sizes:
            raise ValueError(f"dimension {name} is dynamic: add --size {name}=MIN,OPT,MAX")
    return sizes


def check_files(facts: dict[str, Any]) -> None:
    """Raise ``ValueError`` where a file is not the one that was verified."""
    for name, wanted in facts["model"]["sha256"].items():
        digest = hashlib.sha256()
        with (HERE / name).open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        if digest.hexdigest() != wanted:
            raise ValueError(f"{name} is not the file of this package: sha256 {digest.hexdigest()}, expected {wanted}")


def check_version(facts: dict[str, Any], version: str) -> None:
    """Raise ``ValueError`` where TensorRT is too old for the model's operators and opset."""
    least = facts["tensorrt"]["at_least"]
    if [int(part) for part in version.split(".")[:2]] < [int(part) for part in least.split(".")[:2]]:
        raise ValueError(f"TensorRT {version} is here; the model needs {least} or later")


def build(trt: Any, facts: dict[str, Any], asked: argparse.Namespace, sizes: Sizes) -> bytes:
    """The serialized engine; ``RuntimeError`` with what TensorRT says where there is none."""
    logger = trt.Logger(trt.Logger.VERBOSE if asked.verbose else trt.Logger.WARNING)
    try:
        builder = trt.Builder(logger)
    except TypeError as error:
        raise RuntimeError(
            "TensorRT does not start here; its messages are above: is there a GPU, and its driver?"
        ) from error
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    for library in asked.plugin:
        builder.get_plugin_registry().load_library(library)
    network = builder.create_network(network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(HERE / facts["model"]["file"])):
        raise RuntimeError("\n".join(str(parser.get_error(place)) for place in range(parser.num_errors)))
    config = configured(trt, builder, facts, asked)
    if older(trt):
        set_types(trt, config, network, facts["model"]["precisions"])
    add_profile(builder, config, facts, sizes, network)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise RuntimeError("TensorRT built no engine; its messages are above")
    if asked.timing_cache:
        replace(asked.timing_cache, bytes(config.get_timing_cache().serialize()))
    return bytes(engine)


def older(trt: Any) -> bool:
    """Whether it is TensorRT 8, whose networks have no types of their own."""
    return int(trt.__version__.split(".")[0]) < 10


def network_flags(trt: Any) -> int:
    """Types are those of the graph.  TensorRT 11 builds nothing else and ignores the flag."""
    flags = trt.NetworkDefinitionCreationFlag
    return 1 << int(flags.EXPLICIT_BATCH if older(trt) else flags.STRONGLY_TYPED)


def set_types(trt: Any, config: Any, network: Any, precisions: list[str]) -> None:
    """Let TensorRT 8 use the types that the graph has, where the graph has them."""
    if "int8" in precisions:  # its pairs say where
        config.set_flag(trt.BuilderFlag.INT8)
    if "float16" not in precisions:
        return
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    stored = (trt.LayerType.CONSTANT, trt.LayerType.CAST)
    for layer in (network.get_layer(place) for place in range(network.num_layers)):
        kinds = {layer.get_output(place).dtype for place in range(layer.num_outputs)}
        if layer.type not in stored and kinds in ({trt.float32}, {trt.float16}):
            layer.precision = layer.get_output(0).dtype
            for place in range(layer.num_outputs):
                layer.set_output_type(place, layer.precision)


def configured(trt: Any, builder: Any, facts: dict[str, Any], asked: argparse.Namespace) -> Any:
    """The builder's configuration."""
    config = builder.create_builder_config()
    if facts["sparsity"]["weights"]:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if asked.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if asked.no_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if asked.hardware_compatible != "none":
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, LEVELS[asked.hardware_compatible])
    if asked.workspace_mib:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, asked.workspace_mib << 20)
    if asked.timing_cache:
        kept = asked.timing_cache.read_bytes() if asked.timing_cache.exists() else b""
        if not config.set_timing_cache(config.create_timing_cache(kept), False):
            raise RuntimeError(f"{asked.timing_cache} is a timing cache of another GPU or release: delete it")
    return config


def add_profile(builder: Any, config: Any, facts: dict[str, Any], sizes: Sizes, network: Any) -> None:
    """One optimisation profile for all inputs with dynamic dimensions."""
    deciding = [network.get_input(place) for place in range(network.num_inputs)]
    for tensor in deciding:
        if tensor.is_shape_tensor:
            raise RuntimeError(f"the values of input {tensor.name} decide sizes: export it as a constant")
    dynamic = [each for each in facts["inputs"] if any(isinstance(dim, str) for dim in each["shape"])]
    profile = builder.create_optimization_profile()
    for each in dynamic:
        shapes = [[sizes[dim][place] if isinstance(dim, str) else dim for dim in each["shape"]] for place in range(3)]
        profile.set_shape(each["name"], *shapes)
    if dynamic and config.add_optimization_profile(profile) < 0:
        raise RuntimeError("TensorRT takes no profile of these sizes; its messages are above")


def replace(path: Path, content: bytes) -> None:
    """Write a file that is complete or not there."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main())
